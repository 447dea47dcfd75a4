"""Stack overhead: the extra time of a training through YARN, Spark and a launcher, compared with native training.

The stack overhead of a run is its wall time minus the wall time of the native run in the same repeat. The overhead of a
layer is the difference for that layer, so the overheads of layers sum to the stack overhead. All figures are means over
repeats; intervals are exact, from subsets of repeats (`estimates`).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.studies import estimates, pictures, script
from analysis.studies.runs import NATIVE, by_repeat, load
from analysis.studies.script import Shown
from dlobd.compare.figures import PARTS, WALL
from dlobd.compare.median import Estimate
from dlobd.compare.runset import Repeat, RunSet
from dlobd.errors import UsageError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run

PUBLISHED_PERCENT = {"YARN": 15.5, "Spark": 18.1}
"""Maximum percentage of time ("up to") that the DLoBD study reports for SoftMax on MNIST, by layer group."""

WIDE = 0.05
"""Minimum fraction of the axis for a segment with its seconds as text."""

GROUP_LAYERS = {"YARN": "yarn", "Spark": "spark"}
"""Layer with the colour of each layer group of the published figures."""

OUTLINE = [patheffects.withStroke(linewidth=2.5, foreground="white")]
INSIDE: pictures.Style = {"ha": "center", "va": "center", "fontsize": "small", "path_effects": OUTLINE}
"""Style of the seconds inside a segment."""

PUBLISHED = (
    "The DLoBD study reports up to 15.5 % of the time in YARN and up to 18.1 % in Spark job execution for SoftMax on "
    "MNIST. The study does not define the window, the denominator, the parts of YARN and Spark, or the runs behind "
    "each share. The shares must not be added."
)


@dataclass(frozen=True, slots=True)
class Point:
    """Results of a launcher and input; times are in seconds, shares are fractions of 1.

    layers: mean of each measured layer, and of unattributed time; the sum is `wall`.
    groups: mean, and fraction of the wall time, of the groups in `PUBLISHED_PERCENT`; empty for native runs.
    overhead, ratio, layer_overhead: relative to the native runs of the same repeats; `pairs` is the number of these
    repeats.
    """

    label: str
    runs: int
    wall: Estimate
    layers: Mapping[str, float]
    unexplained_s: float
    groups: Mapping[str, tuple[Estimate, Estimate]]
    pairs: int = 0
    overhead: Estimate | None = None
    ratio: Estimate | None = None
    layer_overhead: Mapping[str, Estimate] | None = None


@dataclass(frozen=True, slots=True)
class StackOverhead:
    """Points, first the native point and then by ascending wall time, with `warnings` about them."""

    points: tuple[Point, ...]
    warnings: tuple[str, ...]


def stack_overhead(runs: RunSet, keep_busy: bool = False) -> StackOverhead:
    """Compare runs through the stack with native runs.

    Raises:
        UsageError: the runs did different work; no native run or no stack run is usable; or no repeat has both.
    """
    groups, warnings = script.checked(runs, keep_busy)
    by_label = {label: by_repeat(group) for label, group in groups.items()}
    native = by_label.pop(NATIVE, {})
    if not native:
        raise UsageError("No native run has status ok, so there is no baseline.", "add runs of launcher=native")
    if not by_label:
        raise UsageError("No run with a stack has status ok.", "add runs of another launcher, such as tfos")
    points = [_point(label, own, native) for label, own in by_label.items()]
    points.sort(key=lambda point: point.wall.value)
    return StackOverhead((_alone(NATIVE, native), *points), (*warnings, *_few(points)))


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument for the runs, which did the same work and include native runs."""
    script.add_runs(parser, disturbed=True)


def report(asked: Namespace) -> Shown:
    """Compare the given runs with the native runs among them."""
    found = stack_overhead(load(asked.runs), asked.allow == "busy")
    pieces = [
        *(f"warning: {words}" for words in found.warnings),
        f"Wall and stack overhead, mean seconds with 95 % intervals. {estimates.BY_ITSELF}",
        table(found).to_string(index=False),
        "\nOverhead of each layer, seconds",
        layer_table(found).to_string(index=False),
        f"\n{PUBLISHED}",
    ]
    return pieces, picture(found)


def table(found: StackOverhead) -> pd.DataFrame:
    """Build one row per point, seconds first; brackets hold 95 % intervals with the coverage in the last column."""
    return pd.DataFrame([_row(point) for point in found.points])


def layer_table(found: StackOverhead) -> pd.DataFrame:
    """Build one row per point with the overhead of each layer; the first row has the seconds of native runs."""
    names = [name for name in PARTS if any(name in point.layers for point in found.points)]
    rows = []
    for point in found.points:
        own = point.layer_overhead or {name: Estimate(seconds) for name, seconds in point.layers.items()}
        label = point.label if point.layer_overhead else f"{point.label}, its own"
        cells = {f"{name}, s": str(own[name]) if name in own else "-" for name in names}
        rows.append({"": label, **cells, "coverage": estimates.coverage(*own.values())})
    return pd.DataFrame(rows)


def _point(label: str, runs: Mapping[Repeat, Run], native: Mapping[Repeat, Run]) -> Point:
    common = sorted(runs.keys() & native.keys())
    if not common:
        raise UsageError(f"No repeat has both a native run and a run of {label}.", "run them in one series")
    pairs = [(_seconds(runs[repeat]), _seconds(native[repeat])) for repeat in common]

    def values(name: str) -> tuple[list[float], list[float]]:
        return [own.get(name, 0.0) for own, _ in pairs], [other.get(name, 0.0) for _, other in pairs]

    def added(name: str) -> Estimate:
        return estimates.mean([own - other for own, other in zip(*values(name), strict=True)])

    layers = {name: added(name) for name in _names([*runs.values(), *native.values()])}
    return replace(
        _alone(label, runs),
        pairs=len(common),
        overhead=added(WALL),
        ratio=estimates.ratio(*values(WALL)),
        layer_overhead=layers,
    )


def _alone(label: str, runs: Mapping[Repeat, Run]) -> Point:
    own = list(runs.values())
    seconds = [_seconds(run) for run in own]
    walls = [each[WALL] for each in seconds]
    means = {name: fmean(each.get(name, 0.0) for each in seconds) for name in _names(own)}
    groups = {}
    for group in PUBLISHED_PERCENT if label != NATIVE else ():
        values = [
            sum(each.get(name, 0.0) for name, layer in LAYERS.items() if layer.group == group) for each in seconds
        ]
        groups[group] = (estimates.mean(values), estimates.ratio(values, walls))
    unexplained_s = fmean(run.unexplained_ns / 1e9 for run in own)
    return Point(label, len(own), estimates.mean(walls), means, unexplained_s, groups)


def _seconds(run: Run) -> dict[str, float]:
    # a layer without a row has no wall time: it took no part, or lies inside another layer
    rest = {UNATTRIBUTED: run.unattributed_ns / 1e9} if run.unattributed_ns else {}
    return {row.layer: row.ns / 1e9 for row in run.layers} | rest | {WALL: (run.wall_ns or 0) / 1e9}


def _names(runs: Sequence[Run]) -> list[str]:
    seen = {name for run in runs for name in _seconds(run)}
    return [name for name in PARTS if name in seen]


def _few(points: Sequence[Point]) -> list[str]:
    few = [f"{point.label} {point.pairs}" for point in points if point.pairs < estimates.ENOUGH]
    return [f"Too few repeats for an interval, which needs {estimates.ENOUGH}: {', '.join(few)}."] if few else []


def _row(point: Point) -> dict[str, str]:
    row = {"": point.label, "n": str(point.runs), "wall, s": str(point.wall)}
    row |= {"overhead, s": str(point.overhead or "-"), "ratio to native": str(point.ratio or "1")}
    for group in PUBLISHED_PERCENT:
        seconds, of_wall = point.groups.get(group, (None, None))
        row[f"{group}, s"] = str(seconds or "-")
        row[f"{group}, % of wall"] = f"{100 * of_wall.value:.1f}" if of_wall else "-"
    return row | {
        "unexplained, s": f"{point.unexplained_s:.3f}",
        "coverage": estimates.coverage(point.wall, point.ratio),
    }


def picture(found: StackOverhead) -> Figure:
    """Draw the seconds of each point by layer (left), and measured and published percentages of the wall time
    (right)."""
    figure = Figure(figsize=(13, 1.8 + 0.62 * len(found.points)), layout="constrained")
    bars, shares = figure.subplots(1, 2, width_ratios=(3, 1))
    _bars(bars, found)
    _shares(shares, found)
    pictures.layer_legend(figure, {name for point in found.points for name, seconds in point.layers.items() if seconds})
    return figure


def _bars(axes: Axes, found: StackOverhead) -> None:
    widest = max(point.wall.high or point.wall.value for point in found.points)
    room = 1.32 * widest
    for row, point in enumerate(found.points):
        left = 0.0
        for layer, seconds in point.layers.items():
            axes.barh(row, seconds, left=left, height=0.62, **pictures.bar(layer))
            if seconds >= WIDE * room:
                axes.text(left + seconds / 2, row, f"{seconds:.1f}", **INSIDE)
            left += seconds
        end = left
        if point.wall.low is not None and point.wall.high is not None:
            axes.plot([point.wall.low, point.wall.high], [row, row], color="black", linewidth=1.2, marker="|")
            end = max(left, point.wall.high)
        times = f"\n{point.ratio} x native" if point.ratio else ""
        axes.text(end + 0.01 * room, row, f"{point.wall.value:.1f} s{times}", va="center", fontsize="small")
    axes.set_xlim(0, room)
    axes.set_yticks(range(len(found.points)), [point.label for point in found.points])
    axes.invert_yaxis()
    axes.set_xlabel("mean seconds of the wall time; the line at the end is the total's 95 % interval")
    axes.set_title("Native against in-stack: the same training, by layer", loc="left")


def _shares(axes: Axes, found: StackOverhead) -> None:
    rows = [point.label for point in found.points]
    height = 0.31
    for place, group in enumerate(PUBLISHED_PERCENT):
        percent = [100 * point.groups[group][1].value if point.groups else 0.0 for point in found.points]
        percent.append(PUBLISHED_PERCENT[group])
        at = [row + (place - 0.5) * height for row in range(len(percent))]
        axes.barh(at, percent, height=height, label=f"in {group}", **pictures.bar(GROUP_LAYERS[group]))
        for row, value in zip(at, percent, strict=True):
            upto = "up to " if row > len(rows) - 0.6 else ""
            if value:
                axes.text(value + 1, row, f"{upto}{value:.1f} %", va="center", fontsize="x-small")
    axes.axhline(len(rows) - 0.5, color="black", linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(rows) + 1), [*rows, "DLoBD study\n(definition not\npublished)"])
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    axes.set_xlabel("percent of the wall time")
    axes.legend(fontsize="x-small", loc="upper right")
