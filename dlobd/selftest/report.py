"""Results of a self-test: every delay, the layers it was blamed on, recovered against injected time, layer totals
against those of the controls, and how much of a run all of this proves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from dlobd.layers import LAYERS
from dlobd.selftest import coverage, paired_controls
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.runs import SelftestRun
from dlobd.selftest.score import BLAMED, RIGHT, WRONG, Recovery, confusion, lines

DELAYS = ("point", "by", "delays", "injected s", "recovered s", "least", "most elsewhere")
LINES = ("layer", "delays", "slope", "intercept ms")
TOTALS = ("way", "layer", "injected s", "added s", "median error s", "interval s", "holds 0")
COVERED = ("way", "wall s", "in spans with a delay", "without sleeps", "largest without one, s")

HOLDING = 0.9
"""The least share of layer totals whose interval has to hold the truth: an interval of 95 % misses it now and then."""

TOUCHED = 0.8
"""The least share of the wall that has to lie in spans that a delay was put into."""

MAIN = "feed"
"""The way that the main job goes, with one rank."""

SHOWN = 4
"""So many spans without a delay are told."""


def document(rans: Sequence[SelftestRun]) -> dict[str, Any]:
    """All of it as one JSON document: times in nanoseconds."""
    found = [one for ran in rans for one in ran.found]
    return {
        "facts": facts(rans) if rans else [],
        "ok": bool(found) and all(ran.ok for ran in rans),
        "target": {"right": RIGHT, "wrong": WRONG, "holding": HOLDING, "touched": TOUCHED},
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
        "totals": [_total(one) for one in _totals(rans)],
        "coverage": _coverage(rans),
        "never_delayed": never_delayed(found),
    }


def _totals(rans: Sequence[SelftestRun]) -> list[paired_controls.Total]:
    every = [(ran, paired_controls.of_run(ran.plan.way, ran.plan.block, ran.injected, ran.attribution)) for ran in rans]
    return paired_controls.compared(
        [total for ran, total in every if not ran.plan.control], [total for ran, total in every if ran.plan.control]
    )


def _total(one: paired_controls.Total) -> dict[str, Any]:
    return {**asdict(one), "error_ns": asdict(one.error_ns), "holds": one.holds}


def _coverage(rans: Sequence[SelftestRun]) -> list[dict[str, Any]]:
    """A row a way: of its control, or of its run with delays where it has none."""
    delayed = [ran for ran in rans if not ran.plan.control]
    touched = {named for ran in delayed for named in coverage.touched(ran.injected, ran.attribution)}
    of_way: dict[str, SelftestRun] = {}
    for ran in sorted(rans, key=lambda ran: not ran.plan.control):
        if not ran.plan.own:
            of_way.setdefault(ran.plan.way, ran)
    rows = []
    for way, ran in of_way.items():
        covered = coverage.of_run(ran.attribution, touched)
        rest = [{"layer": layer, "name": name, "ns": ns} for (layer, name), ns in covered.untouched_ns]
        rows.append(
            {"way": way, "control": ran.plan.control, "wall_ns": covered.wall_ns, "touched_ns": covered.touched_ns}
            | {"asleep_ns": covered.asleep_ns, "untouched": rest}
        )
    return rows


def facts(rans: Sequence[SelftestRun]) -> list[str]:
    """Where and when it was made, one line each."""
    settings = ", ".join(sorted({setting for ran in rans for setting in ran.plan.settings}))
    first = rans[0].record
    machine, versions = first.platform, first.versions
    named = [f"{name} {versions.get(name)}" for name in ("dlobd", "java", "hadoop", "pyspark", "tensorflow")]
    disk = "" if any(ran.plan.disk_bytes_per_s for ran in rans) else "; no slow disk"
    controls = sum(ran.plan.control for ran in rans)
    return [
        f"{first.started_at[:10]}, {machine.get('processor')}, {machine['cores']} cores",
        ", ".join(named),
        f"{len(rans)} runs of {first.experiment}, of which {controls} controls{disk}, with {settings}",
    ]


def never_delayed(found: Iterable[Recovery]) -> list[str]:
    """The layers of which nothing is proved here."""
    delayed = {one.layer for one in found}
    return [layer for layer in LAYERS if layer not in delayed]


def tables(rans: Sequence[SelftestRun], console: Console) -> None:
    """Prints all tables that there are rows for, and the verdict."""
    whole = document(rans)
    matrix = (("delayed", *columns(whole)), matrix_rows(whole), "blamed, s")
    for header, rows, title in (
        (DELAYS, by_point(whole), ""),
        matrix,
        (LINES, line_rows(whole), ""),
        (TOTALS, total_rows(whole), "with delays, less the control of the same block"),
        (COVERED, covered_rows(whole), "share of the wall in spans with a delay"),
    ):
        if rows:
            console.print(_table(header, rows, title), "")
    for run in whole["runs"]:
        if run["status"] != "ok":
            console.print(f"run {run['run']} ({run['plan']}) is {run['status']}: {run['reason']}")
        if run["missing"]:
            console.print(f"run {run['run']} ({run['plan']}): not made: {', '.join(run['missing'])}")
    for line in verdicts(whole):
        console.print(line)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> Table:
    columns = [Column(header[0], no_wrap=True), *(Column(name, justify="right") for name in header[1:])]
    table = Table(*columns, title=title or None, title_justify="left", box=None)
    for row in rows:
        table.add_row(*row)
    return table


def verdicts(whole: Mapping[str, Any]) -> list[str]:
    """A sentence on the delays, and one each on totals and coverage where there are any."""
    right = sum(one["ok"] for one in whole["delays"])
    target = f"at least {RIGHT:.0%} in its own layer, at most {WRONG:.0%} in any other"
    said = "passed" if whole["ok"] else "FAILED"
    never = f"; nothing was injected into {', '.join(whole['never_delayed'])}" if whole["never_delayed"] else ""
    told = [f"{said}: {right} of {len(whole['delays'])} delays were found ({target}){never}"]
    if judged := [one for one in whole["totals"] if one["holds"] is not None]:
        held = sum(one["holds"] for one in judged)
        least = min(one["error_ns"]["coverage"] for one in judged)
        told.append(
            f"{held} of {len(judged)} layer totals: the {least:.1%} interval of what was added holds what was injected "
            f"(target {HOLDING:.0%})"
        )
    if whole["coverage"]:
        shares = {one["way"]: one["touched_ns"] / one["wall_ns"] for one in whole["coverage"]}
        least, awake = min(shares.values()), min(map(_awake, whole["coverage"]))
        main = f"{shares[MAIN]:.1%} of the wall of the main job's way, {MAIN}, and " if MAIN in shares else ""
        told.append(
            f"{main}at least {least:.1%} of any way's lies in spans with a delay (target {TOUCHED:.0%}); without "
            f"sleeps whose length was read from the run, {awake:.1%} of any"
        )
    return told


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
                point.by,
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


def total_rows(whole: Mapping[str, Any]) -> list[list[str]]:
    """A row a layer of a way: means over the blocks, and the error's median with its interval."""
    rows = []
    for one in whole["totals"]:
        injected, added = one["injected_ns"], one["added_ns"]
        error = one["error_ns"]
        known = error["coverage"] is not None
        rows.append(
            [
                one["way"],
                one["layer"],
                _s(sum(injected) / len(injected)),
                _s(sum(added) / len(added)),
                _signed(error["value"]),
                f"{_signed(error['low'])} to {_signed(error['high'])}" if known else f"{len(added)} blocks: none",
                {True: "yes", False: "NO", None: "-"}[one["holds"]],
            ]
        )
    return rows


def covered_rows(whole: Mapping[str, Any]) -> list[list[str]]:
    """A row a way: the share of its wall, and what is left out."""
    rows = []
    for one in whole["coverage"]:
        rest = ", ".join(f"{span['name']} {_s(span['ns'])}" for span in one["untouched"][:SHOWN])
        way = one["way"] if one["control"] else f"{one['way']} (with its delays)"
        share = one["touched_ns"] / one["wall_ns"]
        rows.append([way, _s(one["wall_ns"]), f"{share:.1%}", f"{_awake(one):.1%}", rest])
    return rows


def _awake(row: Mapping[str, Any]) -> float:
    """The share of a wall without the sleeps whose length was read from the run."""
    return float(row["touched_ns"] / (row["wall_ns"] - row["asleep_ns"]))


def _s(ns: float) -> str:
    return f"{ns / 1e9:.3f}"


def _signed(ns: float) -> str:
    return f"{ns / 1e9:+.3f}"
