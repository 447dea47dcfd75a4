"""Native against in-stack: what the same training costs more where it goes through YARN, Spark and a launcher.

The stack overhead of a run is its wall less that of the native run of the same work in the same repeat, in seconds. Of
a layer it is the same difference of that layer, so that the layers' overheads add up to the whole. All figures are
means over repeats, which add up too; intervals are exact, from sets of whole repeats (`dlobd.report.paired`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from dlobd.attribution.statistics import Estimate
from dlobd.errors import UsageError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report import paired
from dlobd.report.blocks import NATIVE, Taken, check_equal, sound, warnings
from dlobd.report.chosen import Repeat

PUBLISHED_PERCENT = {"YARN": 15.5, "Spark": 18.1}
"""Layer group to the share of time that the DLoBD study reports for SoftMax on MNIST, each as "up to"."""

PUBLISHED = (
    "The DLoBD study reports up to 15.5 % of the time in YARN and up to 18.1 % in Spark job execution for SoftMax on "
    "MNIST. Their definition was not published: not the window, not the denominator, not what counts as YARN or as "
    "Spark, and not whether both are of one run, so that they must not be added."
)


@dataclass(frozen=True, slots=True)
class Point:
    """A launcher and input. Seconds; shares of 1.

    layers: mean of each layer that was measured, and of what is unattributed; they add up to `wall`.
    groups: of `PUBLISHED_PERCENT`, mean and share of the wall; empty for native runs.
    overhead, ratio, layer_overhead: against the native runs of the same repeats, of which there are `pairs`.
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
    """The native point first, then the others by their walls; `warnings` say what makes them doubtful."""

    points: tuple[Point, ...]
    warnings: tuple[str, ...]


def stack_overhead(every: Sequence[Taken], keep_disturbed: bool = False) -> StackOverhead:
    """Compares runs in a stack with native ones.

    Raises:
        UsageError: the runs did not do the same work; no native run is ok, or no other one; or no repeat has both.
    """
    check_equal(every)
    by_label: dict[str, dict[Repeat, Run]] = {}
    for one in sound(every, keep_disturbed):
        if one.repeat in by_label.setdefault(one.label, {}):
            raise UsageError(f"Repeat {one.repeat[1]} has two runs of {one.label}.", "give one series at a time")
        by_label[one.label][one.repeat] = one.run
    native = by_label.pop(NATIVE, {})
    if not native:
        raise UsageError("No native run is ok: there is nothing to compare with.", "add runs of launcher=native")
    if not by_label:
        raise UsageError("There is no run in a stack that is ok.", "add runs of another launcher, such as tfos")
    points = [_point(label, runs, native) for label, runs in by_label.items()]
    points.sort(key=lambda point: point.wall.value)
    return StackOverhead((_alone(NATIVE, native), *points), (*warnings(every, keep_disturbed), *_few(points)))


def share(point: Point, group: str) -> Estimate | None:
    """Share of the wall that a layer group of `PUBLISHED_PERCENT` has; None for native runs."""
    return point.groups[group][1] if group in point.groups else None


def report(found: StackOverhead) -> list[str]:
    """What a person reads: doubts, both tables, and the published figures."""
    return [
        *(f"warning: {words}" for words in found.warnings),
        f"Wall and what the stack adds to native, mean seconds with 95 % intervals. {paired.BY_ITSELF}",
        table(found).to_string(index=False),
        "\nSeconds of each layer that come on top of native",
        layer_table(found).to_string(index=False),
        f"\n{PUBLISHED}",
    ]


def table(found: StackOverhead) -> pd.DataFrame:
    """One row a point, seconds first; in brackets 95 % intervals, whose coverage is the last column."""
    return pd.DataFrame([_row(point) for point in found.points])


def layer_table(found: StackOverhead) -> pd.DataFrame:
    """One row a point: seconds of each layer that come on top of native; the first row is native's own seconds."""
    names = [name for name in (*LAYERS, UNATTRIBUTED) if any(name in point.layers for point in found.points)]
    rows = []
    for point in found.points:
        own = point.layer_overhead or {name: Estimate(seconds) for name, seconds in point.layers.items()}
        label = point.label if point.layer_overhead else f"{point.label}, its own"
        cells = {f"{name}, s": str(own[name]) if name in own else "-" for name in names}
        rows.append({"": label, **cells, "coverage": paired.coverage(*own.values())})
    return pd.DataFrame(rows)


def _point(label: str, runs: Mapping[Repeat, Run], native: Mapping[Repeat, Run]) -> Point:
    common = sorted(runs.keys() & native.keys())
    if not common:
        raise UsageError(f"No repeat has both a native run and one of {label}.", "run them in one series")
    alone = _alone(label, runs)
    layers = _names([*runs.values(), *native.values()])

    def differences(of: Callable[[Run], float]) -> list[float]:
        return [of(runs[repeat]) - of(native[repeat]) for repeat in common]

    def of_layer(name: str) -> Callable[[Run], float]:
        return lambda run: _seconds(run).get(name, 0.0)

    own_s, native_s = ([_wall_s(each[repeat]) for repeat in common] for each in (runs, native))
    return Point(
        label, alone.runs, alone.wall, alone.layers, alone.unexplained_s, alone.groups,
        len(common), paired.mean(differences(_wall_s)), paired.ratio(own_s, native_s),
        {name: paired.mean(differences(of_layer(name))) for name in layers},
    )  # fmt: skip


def _alone(label: str, runs: Mapping[Repeat, Run]) -> Point:
    """What its own runs say of a point."""
    own = list(runs.values())
    walls = [_wall_s(run) for run in own]
    means = {name: fmean(_seconds(run).get(name, 0.0) for run in own) for name in _names(own)}
    groups = {} if label == NATIVE else {group: _group(own, walls, group) for group in PUBLISHED_PERCENT}
    unexplained_s = fmean(run.unexplained_ns / 1e9 for run in own)
    return Point(label, len(own), paired.mean(walls), means, unexplained_s, groups)


def _group(runs: Sequence[Run], walls: Sequence[float], group: str) -> tuple[Estimate, Estimate]:
    """Mean seconds of a layer group, and the share that they are of the mean wall."""
    names = [name for name, layer in LAYERS.items() if layer.group == group]
    values = [sum(_seconds(run).get(name, 0.0) for name in names) for run in runs]
    return paired.mean(values), paired.ratio(values, walls)


def _seconds(run: Run) -> dict[str, float]:
    """Layer to its part of the wall, and what is unattributed, if anything is.

    A layer without a row has no time in the wall: it took no part, or lies inside another one's number."""
    rest = {UNATTRIBUTED: run.unattributed_ns / 1e9} if run.unattributed_ns else {}
    return {row.layer: row.ns / 1e9 for row in run.layers} | rest


def _names(runs: Sequence[Run]) -> list[str]:
    """The layers that any of the runs has, in their order."""
    seen = {name for run in runs for name in _seconds(run)}
    return [name for name in (*LAYERS, UNATTRIBUTED) if name in seen]


def _wall_s(run: Run) -> float:
    assert run.wall_ns
    return run.wall_ns / 1e9


def _few(points: Sequence[Point]) -> list[str]:
    few = [f"{point.label} {point.pairs}" for point in points if point.pairs < paired.ENOUGH]
    return [f"Too few repeats for an interval, which needs {paired.ENOUGH}: {', '.join(few)}."] if few else []


def _row(point: Point) -> dict[str, str]:
    row = {"": point.label, "n": str(point.runs), "wall, s": str(point.wall)}
    row |= {"overhead, s": str(point.overhead or "-"), "ratio to native": str(point.ratio or "1")}
    for group in PUBLISHED_PERCENT:
        seconds, of_wall = point.groups.get(group, (None, None))
        row[f"{group}, s"] = str(seconds or "-")
        row[f"{group}, % of wall"] = f"{100 * of_wall.value:.1f}" if of_wall else "-"
    return row | {"unexplained, s": f"{point.unexplained_s:.3f}", "coverage": paired.coverage(point.wall, point.ratio)}
