"""Results of a self-test as one document and as tables: delays, layer totals, and coverage."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from dlobd.layers import LAYERS
from dlobd.report.text import percentage
from dlobd.selftest import score
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.runs import SelftestRun
from dlobd.selftest.score import BLAMED, HELD_UP, RIGHT, WRONG, confusion, lines

Document = dict[str, Any]
"""All results as JSON, of this self-test or from a published file."""

DELAYS = ("point", "by", "delays", "injected s", "held up s", "recovered s", "least recovered", "most in another layer")
LINES = ("layer", "delays", "slope", "intercept ms")
TOTALS = ("way", "layer", "injected s", "added s", "median error s", "interval s", "holds 0")
COVERED = ("way", "wall time s", "in spans with a delay", "without sleeps", "longest spans without a delay, s")

HOLDING = 0.9
"""Smallest fraction of layer totals whose interval must contain the injected time; some 95 % intervals miss it."""

TOUCHED = 0.8
"""Smallest fraction of the wall time that must lie in spans that contained a delay."""

MAIN = "feed"
"""Way of the main job, with one rank."""

SHOWN = 4
"""Number of spans without a delay that are listed."""


def document(rans: Sequence[SelftestRun]) -> Document:
    """Return all results as one JSON document; times in nanoseconds."""
    scored = [recovery for ran in rans for recovery in ran.scored]
    return {
        "facts": _facts(rans) if rans else [],
        "ok": bool(scored) and all(ran.ok for ran in rans),
        "target": {"right": RIGHT, "wrong": WRONG, "held_up": HELD_UP, "holding": HOLDING, "touched": TOUCHED},
        "runs": [
            {
                "run": ran.bundle.name,
                "plan": ran.plan.name,
                "settings": list(ran.plan.settings),
                "status": ran.record.status,
                "reason": ran.record.reason,
                "missing": list(ran.missing),
                "attempt": ran.plan.attempt,
                "repeated": sorted(ran.repeated),
            }
            for ran in rans
        ],
        "delays": [
            {
                "run": recovery.run,
                "layer": recovery.layer,
                **asdict(recovery.injected),
                "ns": recovery.injected.ns,
                "held_ns": recovery.held_ns,
                "inside": recovery.held.inside,
                "blamed": dict(recovery.blamed),
                "verdict": recovery.verdict,
                "repeated": recovery.injected.point in ran.repeated,
            }
            for ran in rans
            for recovery in ran.recoveries
        ],
        "confusion": confusion(scored),
        "lines": {layer: asdict(line) for layer, line in lines(scored).items()},
        "totals": [
            {**asdict(total), "error_ns": asdict(total.error_ns), "holds": total.holds} for total in _totals(rans)
        ],
        "coverage": _coverage(rans),
        "never_delayed": [layer for layer in LAYERS if all(recovery.layer != layer for recovery in scored)],
    }


def _totals(rans: Sequence[SelftestRun]) -> list[score.Total]:
    runs: dict[bool, list[score.RunTotals]] = {True: [], False: []}
    for ran in rans:
        if not ran.plan.attempt:  # a repetition has no control beside it
            plan = ran.plan
            runs[plan.control].append(score.totals_of(plan.way, plan.block, ran.injected, ran.attribution))
    return score.compared(runs[False], runs[True])


def _coverage(rans: Sequence[SelftestRun]) -> list[Document]:
    """Return a row per way: of its control, or of its run with delays if it has no control."""
    delayed = [ran for ran in rans if not ran.plan.control]
    touched = {named for ran in delayed for named in score.touched(ran.injected, ran.attribution)}
    of_way: dict[str, SelftestRun] = {}
    for ran in sorted(rans, key=lambda ran: not ran.plan.control):
        if not ran.plan.own:
            of_way.setdefault(ran.plan.way, ran)
    rows = []
    for way, ran in of_way.items():
        covered = score.coverage_of(ran.attribution, touched)
        rest = [{"layer": layer, "name": name, "ns": ns} for (layer, name), ns in covered.untouched_ns]
        rows.append(
            {"way": way, "control": ran.plan.control, "wall_ns": covered.wall_ns, "touched_ns": covered.touched_ns}
            | {"asleep_ns": covered.asleep_ns, "untouched": rest}
        )
    return rows


def _facts(rans: Sequence[SelftestRun]) -> list[str]:
    settings = ", ".join(sorted({setting for ran in rans for setting in ran.plan.settings}))
    first = rans[0].record
    machine, versions = first.platform, first.versions
    labels = [f"{name} {versions.get(name)}" for name in ("dlobd", "java", "hadoop", "pyspark", "tensorflow")]
    disk = "" if any(ran.plan.disk_bytes_per_s for ran in rans) else "; no slow disk"
    controls = sum(ran.plan.control for ran in rans)
    repeats = sum(bool(ran.plan.attempt) for ran in rans)
    number = f"{len(rans)} runs of {first.experiment}, including {controls} controls and {repeats} repetitions"
    return [
        f"{first.started_at[:10]}, {machine.get('processor')}, {machine['cores']} cores",
        ", ".join(labels),
        f"{number}{disk}, with {settings}",
    ]


def tables(rans: Sequence[SelftestRun], console: Console) -> None:
    """Print all tables with rows, and the verdict."""
    whole = document(rans)
    for header, rows, title in (
        (DELAYS, by_point(whole), None),
        (("delayed", *columns(whole)), matrix_rows(whole), "blamed, s"),
        (LINES, line_rows(whole), None),
        (TOTALS, total_rows(whole), "runs with delays minus the control of the same block"),
        (COVERED, covered_rows(whole), "fraction of the wall time in spans with a delay"),
    ):
        if rows:
            titles = [Column(header[0], no_wrap=True), *(Column(name, justify="right") for name in header[1:])]
            table = Table(*titles, title=title, title_justify="left", box=None)
            for row in rows:
                table.add_row(*row)
            console.print(table, "")
    for run in whole["runs"]:
        if run["status"] != "ok":
            console.print(f"run {run['run']} ({run['plan']}) is {run['status']}: {run['reason']}")
        if run["missing"]:
            console.print(f"run {run['run']} ({run['plan']}): not injected: {', '.join(run['missing'])}")
    for line in (*exceptions(whole), *verdicts(whole)):
        console.print(line)


def exceptions(whole: Document) -> list[str]:
    """Return a line per delay that was not found, including repeated delays."""
    lines = []
    for delay in whole["delays"]:
        if delay["verdict"] != "found":
            blamed = ", ".join(f"{layer} {_s(ns)} s" for layer, ns in delay["blamed"].items())
            inside = f", stopped inside the call {delay['inside']}" if delay["inside"] else ""
            again = "; repeated" if delay["repeated"] else ""
            lines.append(
                f"run {delay['run']}: the delay of {_s(delay['ns'])} s at {delay['point']} is {delay['verdict']}; "
                f"it held up the job for {_s(delay['held_ns'])} s{inside}; blamed: {blamed or 'nothing'}{again}"
            )
    return lines


def verdicts(whole: Document) -> list[str]:
    """Return a sentence on the delays, and further sentences on totals and coverage if there are any."""
    scored = _scored(whole)
    right = sum(delay["verdict"] == "found" for delay in scored)
    target = f"at least {percentage(RIGHT)} in the right layer, at most {percentage(WRONG)} in any other layer"
    result = "passed" if whole["ok"] else "FAILED"
    repeated = sorted({point for run in whole["runs"] for point in run["repeated"]})
    again = f"; hidden or missing, and repeated: {', '.join(repeated)}" if repeated else ""
    never = f"; nothing was injected into {', '.join(whole['never_delayed'])}" if whole["never_delayed"] else ""
    sentences = [f"{result}: {right} of {len(scored)} delays were found ({target}){again}{never}"]
    if judged := [total for total in whole["totals"] if total["holds"] is not None]:
        held = sum(total["holds"] for total in judged)
        least = min(total["error_ns"]["coverage"] for total in judged)
        sentences.append(
            f"in {held} of {len(judged)} layer totals, the {percentage(least, 1)} interval of the added time contains "
            f"the injected time (target {percentage(HOLDING)})"
        )
    if whole["coverage"]:
        shares = {row["way"]: row["touched_ns"] / row["wall_ns"] for row in whole["coverage"]}
        least, awake = min(shares.values()), min(map(_awake, whole["coverage"]))
        main = f"; in way {MAIN}, they cover {percentage(shares[MAIN], 1)}" if MAIN in shares else ""
        target = f"target {percentage(TOUCHED)}"
        sentences += [
            f"spans with a delay cover at least {percentage(least, 1)} of the wall time of every way ({target}){main}",
            f"without sleeps of known duration, they cover at least {percentage(awake, 1)}",
        ]
    return sentences


def _scored(whole: Document) -> list[Document]:
    return [delay for delay in whole["delays"] if not delay["repeated"]]


def by_point(whole: Document) -> list[list[str]]:
    """Return a row per point: the number of delays, the sums of their times, and the worst fractions."""
    rows = []
    for name, point in POINTS.items():
        own = [delay for delay in _scored(whole) if delay["point"] == name]
        if not own:
            continue
        held = [delay for delay in own if delay["held_ns"]]
        shares = [delay["blamed"].get(point.layer, 0) / delay["held_ns"] for delay in held]
        wrong = [
            ns / delay["held_ns"] for delay in held for layer, ns in delay["blamed"].items() if layer != point.layer
        ]
        recovered_ns = sum(delay["blamed"].get(point.layer, 0) for delay in own)
        sums_ns = (sum(delay["ns"] for delay in own), sum(delay["held_ns"] for delay in own), recovered_ns)
        worst = (min(shares, default=0), max(wrong, default=0))
        rows.append([name, point.by, str(len(own)), *map(_s, sums_ns), *(percentage(share, 1) for share in worst)])
    return rows


def columns(whole: Document) -> list[str]:
    """Return the columns of the confusion matrix: all blamed names, in the order of the layers."""
    return [name for name in BLAMED if any(name in row for row in whole["confusion"].values())]


def matrix_rows(whole: Document) -> list[list[str]]:
    """Return the confusion matrix in seconds, a row per delayed layer."""
    return [
        [layer, *(_s(row[name]) if name in row else "" for name in columns(whole))]
        for layer, row in whole["confusion"].items()
    ]


def line_rows(whole: Document) -> list[list[str]]:
    """Return a row per layer with its regression line; without a slope if all its delays had the same size."""
    rows = []
    for layer, line in whole["lines"].items():
        fitted = line["slope"] is not None
        slope = f"{line['slope']:.4f}" if fitted else "one size"
        rows.append([layer, str(line["delays"]), slope, f"{line['intercept_ns'] / 1e6:.2f}" if fitted else ""])
    return rows


def total_rows(whole: Document) -> list[list[str]]:
    """Return a row per way and layer: means over the blocks, and the median error with its interval."""
    rows = []
    for total in whole["totals"]:
        injected, added = total["injected_ns"], total["added_ns"]
        error = total["error_ns"]
        interval = f"{len(added)} blocks: none"
        if error["coverage"] is not None:
            interval = f"{_s(error['low'], '+')} to {_s(error['high'], '+')}"
        means = _s(sum(injected) / len(injected)), _s(sum(added) / len(added))
        holds = {True: "yes", False: "NO", None: "-"}[total["holds"]]
        rows.append([total["way"], total["layer"], *means, _s(error["value"], "+"), interval, holds])
    return rows


def covered_rows(whole: Document) -> list[list[str]]:
    """Return a row per way: the fraction of its wall time in spans with a delay, and the longest other spans."""
    rows = []
    for covered in whole["coverage"]:
        rest = ", ".join(f"{span['name']} {_s(span['ns'])}" for span in covered["untouched"][:SHOWN])
        way = covered["way"] if covered["control"] else f"{covered['way']} (with its delays)"
        share = covered["touched_ns"] / covered["wall_ns"]
        rows.append([way, _s(covered["wall_ns"]), percentage(share, 1), percentage(_awake(covered), 1), rest])
    return rows


def _awake(row: Document) -> float:
    """Return the fraction of the wall time, less sleeps of known duration, that lies in spans with a delay."""
    return float(row["touched_ns"] / (row["wall_ns"] - row["asleep_ns"]))


def _s(ns: float, sign: str = "") -> str:
    return f"{ns / 1e9:{sign}.3f}"
