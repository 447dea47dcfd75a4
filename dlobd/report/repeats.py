"""What the repeats of a series show together: per point the wall's median and spread, and its layers' medians.

Only runs with status ok count; the others are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

from dlobd.attribution.statistics import Spread, spread
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report.summary import layer_s, wall_s

Runs = Mapping[str, Sequence[Run]]
"""Label of a point to its runs that have ended."""


def metric(name: str, unit: float = 1) -> Callable[[Run], float | None]:
    """The value of one of the run's metrics, in `unit`s."""

    def value(run: Run) -> float | None:
        found: float | None = getattr(run.metrics, name)
        return None if found is None else found / unit

    return value


def over_repeats(runs: Sequence[Run], value: Callable[[Run], float | None]) -> Spread:
    """The spread of a value over the runs that are ok."""
    return spread(value(run) for run in runs if run.status == "ok")


def left_out(runs: Sequence[Run]) -> str:
    """How many runs are not ok and so count nowhere, by status; empty if all are."""
    counts = Counter(run.status for run in runs if run.status != "ok")
    each = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{sum(counts.values())} of {len(runs)} runs, not ok: {each}" if counts else ""


def table(points: Runs, console: Console) -> None:
    """Prints the walls with their spread, the layers' medians, and what ended otherwise than ok."""
    console.print("Wall, seconds")
    walls = plain_table("point", "ok", "median", "min", "max", "IQR")
    for label, runs in points.items():
        found = over_repeats(runs, wall_s)
        iqr = found.q3 - found.q1 if found.q3 is not None and found.q1 is not None else None
        figures = (found.median, found.low, found.high, iqr)
        walls.add_row(label, f"{found.n}/{len(runs)}", *map(_figure, figures))
    console.print(walls)
    console.print("\nLayers, median seconds (medians need not add up)")
    layers = plain_table("layer", *points)
    for layer in (*LAYERS, UNATTRIBUTED):
        medians = [over_repeats(runs, partial(layer_s, layer=layer)).median for runs in points.values()]
        if any(medians):
            layers.add_row(layer, *map(_figure, medians))
    console.print(layers)
    say_left_out(points, console)


def say_left_out(points: Runs, console: Console) -> None:
    """Prints which runs count nowhere, and why; nothing where all are ok."""
    if words := left_out([run for runs in points.values() for run in runs]):
        console.print(f"Left out of all figures: {words}", soft_wrap=True)
    for label, runs in points.items():
        for run in runs:
            if run.status != "ok":
                console.print(f"{label}: run {run.run_id} is {run.status}: {run.reason}", soft_wrap=True)


def plain_table(*columns: str) -> Table:
    """An empty table without lines; all columns but the first have figures."""
    made = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left")
    return made


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
