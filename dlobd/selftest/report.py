"""Results of a self-test: every delay, the layers it was blamed on, and recovered against injected time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from dlobd.layers import LAYERS
from dlobd.selftest.points import POINTS
from dlobd.selftest.runs import SelftestRun
from dlobd.selftest.score import BLAMED, RIGHT, WRONG, Recovery, confusion, lines

DELAYS = ("point", "delays", "injected s", "recovered s", "least", "most elsewhere")
LINES = ("layer", "delays", "slope", "intercept ms")


def document(rans: Sequence[SelftestRun]) -> dict[str, Any]:
    """All of it as one JSON document: times in nanoseconds."""
    found = [one for ran in rans for one in ran.found]
    return {
        "facts": facts(rans) if rans else [],
        "ok": bool(found) and all(ran.ok for ran in rans),
        "target": {"right": RIGHT, "wrong": WRONG},
        "runs": [
            {
                "run": ran.bundle.name,
                "plan": ran.plan.name,
                "settings": list(ran.plan.settings),
                "status": ran.record.status,
                "reason": ran.record.reason,
                "missing": list(ran.missing),
            }
            for ran in rans
        ],
        "delays": [
            {
                "run": one.run,
                "layer": one.layer,
                **asdict(one.injected),
                "ns": one.injected.ns,
                "blamed": dict(one.blamed),
                "ok": one.ok,
            }
            for one in found
        ],
        "confusion": confusion(found),
        "lines": {layer: asdict(line) for layer, line in lines(found).items()},
        "never_delayed": never_delayed(found),
    }


def facts(rans: Sequence[SelftestRun]) -> list[str]:
    """Where and when it was made, one line each."""
    settings = ", ".join(sorted({setting for ran in rans for setting in ran.plan.settings}))
    first = rans[0].record
    machine, versions = first.platform, first.versions
    named = [f"{name} {versions.get(name)}" for name in ("dlobd", "java", "hadoop", "pyspark", "tensorflow")]
    return [
        f"{first.started_at[:10]}, {machine.get('processor')}, {machine['cores']} cores",
        ", ".join(named),
        f"{len(rans)} runs of {first.experiment}, with {settings}",
    ]


def never_delayed(found: Iterable[Recovery]) -> list[str]:
    """The layers of which nothing is proved here."""
    delayed = {one.layer for one in found}
    return [layer for layer in LAYERS if layer not in delayed]


def tables(rans: Sequence[SelftestRun], console: Console) -> None:
    """Prints the delays, the confusion matrix and the regressions, and the verdict."""
    whole = document(rans)
    delays = Table(Column(DELAYS[0], no_wrap=True), *_right(*DELAYS[1:]), box=None)
    for row in by_point(whole):
        delays.add_row(*row)
    matrix = Table("delayed", *_right(*columns(whole)), title="blamed, s", title_justify="left", box=None)
    for row in matrix_rows(whole):
        matrix.add_row(*row)
    fitted = Table(LINES[0], *_right(*LINES[1:]), box=None)
    for row in line_rows(whole):
        fitted.add_row(*row)
    for table in (delays, matrix, fitted):
        console.print(table, "")
    for run in whole["runs"]:
        if run["status"] != "ok":
            console.print(f"run {run['run']} ({run['plan']}) is {run['status']}: {run['reason']}")
        if run["missing"]:
            console.print(f"run {run['run']} ({run['plan']}): not made: {', '.join(run['missing'])}")
    console.print(verdict(whole))


def verdict(whole: Mapping[str, Any]) -> str:
    """One sentence."""
    right = sum(one["ok"] for one in whole["delays"])
    target = f"at least {RIGHT:.0%} in its own layer, at most {WRONG:.0%} in any other"
    said = "passed" if whole["ok"] else "FAILED"
    never = f"; nothing was injected into {', '.join(whole['never_delayed'])}" if whole["never_delayed"] else ""
    return f"{said}: {right} of {len(whole['delays'])} delays were found ({target}){never}"


def by_point(whole: Mapping[str, Any]) -> list[list[str]]:
    """A row a point: how many delays, their sum, what was recovered, the worst of them."""
    rows = []
    for name, point in POINTS.items():
        own = [one for one in whole["delays"] if one["point"] == name]
        if not own:
            continue
        shares = [one["blamed"].get(point.layer, 0) / one["ns"] for one in own]
        wrong = [ns / one["ns"] for one in own for layer, ns in one["blamed"].items() if layer != point.layer]
        recovered = sum(one["blamed"].get(point.layer, 0) for one in own)
        rows.append(
            [
                name,
                str(len(own)),
                _s(sum(one["ns"] for one in own)),
                _s(recovered),
                f"{min(shares):.1%}",
                f"{max(wrong, default=0):.1%}",
            ]
        )
    return rows


def columns(whole: Mapping[str, Any]) -> list[str]:
    """What was blamed at least once, in the order of the layers."""
    return [name for name in BLAMED if any(name in row for row in whole["confusion"].values())]


def matrix_rows(whole: Mapping[str, Any]) -> list[list[str]]:
    """The confusion matrix in seconds, a row a layer that was delayed."""
    return [
        [layer, *(_s(row[name]) if name in row else "" for name in columns(whole))]
        for layer, row in whole["confusion"].items()
    ]


def line_rows(whole: Mapping[str, Any]) -> list[list[str]]:
    """The regression of each layer; empty where all delays were of one size."""
    rows = []
    for layer, line in whole["lines"].items():
        fitted = line["slope"] is not None
        slope = f"{line['slope']:.4f}" if fitted else "one size"
        rows.append([layer, str(line["delays"]), slope, f"{line['intercept_ns'] / 1e6:.2f}" if fitted else ""])
    return rows


def _right(*names: str) -> list[Column]:
    return [Column(name, justify="right") for name in names]


def _s(ns: int) -> str:
    return f"{ns / 1e9:.3f}"
