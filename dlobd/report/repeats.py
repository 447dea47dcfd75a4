"""Tables of the points of a series: medians of repeats, and means of a sweep.

Only runs with status ok enter the figures; runs with another status are listed.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

from dlobd.compare.figures import PARTS, Value, layer_s, metric, throughput, wall_s
from dlobd.compare.median import spread
from dlobd.layers import title
from dlobd.record.run import Run

Runs = Mapping[str, Sequence[Run]]
"""Finished runs of each point, by the point's label."""

WIDTH = 300
"""Width of the widest table of a sweep, in columns. A narrower terminal wraps lines; no cell is cut."""


def left_out(runs: Sequence[Run]) -> str:
    """Count the runs with a status other than ok, by status; return "" if all are ok."""
    statuses = Counter(run.status for run in runs if run.status != "ok")
    listed = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return f"{sum(statuses.values())} of {len(runs)} runs are not ok: {listed}" if statuses else ""


def table(points: Runs, console: Console) -> None:
    """Print wall times with their spread, medians of the layers, and the runs with a status other than ok."""
    console.print("Wall, seconds")
    walls = plain_table("point", "ok", "median", "min", "max", "IQR")
    for label, runs in points.items():
        wall = spread(map(wall_s, _ok(runs)))
        iqr = wall.q3 - wall.q1 if wall.q3 is not None and wall.q1 is not None else None
        walls.add_row(label, f"{wall.n}/{len(runs)}", *map(_cell, (wall.median, wall.low, wall.high, iqr)))
    console.print(walls)
    console.print("\nLayers, median seconds (medians need not add up)")
    layers = plain_table("layer", *points)
    for layer in PARTS:
        medians = [spread(map(partial(layer_s, layer=layer), _ok(runs))).median for runs in points.values()]
        if any(medians):
            layers.add_row(title(layer), *map(_cell, medians))
    console.print(layers)
    _print_left_out(points, console)


def sweep_table(points: Runs, console: Console) -> None:
    """Print wall time, throughput, accuracy and layers of each point: mean and standard deviation."""
    console.print("Points, mean ± standard deviation of the runs that are ok")
    rows = plain_table("point", "ok", "wall, s", "samples/s", "accuracy")
    for label, runs in points.items():
        cells = [_mean(runs, value) for value in (wall_s, throughput, metric("test_accuracy"))]
        rows.add_row(label, f"{len(_ok(runs))}/{len(runs)}", *cells)
    console.print(rows)
    console.print("\nLayers, seconds of the wall time, mean ± standard deviation")
    shown = [part for part in PARTS if any(layer_s(run, part) for runs in points.values() for run in _ok(runs))]
    rows = plain_table("point", *map(title, shown))
    for label, runs in points.items():
        rows.add_row(label, *(_mean(runs, partial(layer_s, layer=part)) for part in shown))
    console.print(rows)
    _print_left_out(points, console)


def plain_table(*columns: str, texts: int = 1) -> Table:
    """Create an empty table without rules; all columns after the first `texts` are numeric."""
    made = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < texts else "right")
    return made


def _print_left_out(points: Runs, console: Console) -> None:
    if words := left_out([run for runs in points.values() for run in runs]):
        console.print(f"Left out: {words}", soft_wrap=True)
    for label, runs in points.items():
        for run in runs:
            if run.status != "ok":
                console.print(f"{label}: run {run.run_id} is {run.status}: {run.reason}", soft_wrap=True)


def _ok(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.status == "ok"]


def _mean(runs: Sequence[Run], value: Value) -> str:
    """Format mean and standard deviation (n - 1); only the mean for a single run."""
    known = [number for run in _ok(runs) if (number := value(run)) is not None]
    if not known:
        return "-"
    mean = statistics.fmean(known)
    digits = 0 if mean >= 1000 else 3
    return f"{mean:.{digits}f}" + (f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else "")


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
