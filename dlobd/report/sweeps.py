"""A sweep's runs side by side: as a data frame of one row per run, and as tables of one row per point."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from dlobd.errors import BundleError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.paths import replace_file
from dlobd.record.run import Run
from dlobd.report.repeats import Runs, metric, plain_table, say_left_out
from dlobd.report.summary import layer_s, throughput, title, wall_s
from dlobd.run import series as scheduling
from dlobd.run.series import Series
from dlobd.schema import Runnable

PARTS = (*LAYERS, UNATTRIBUTED)

WIDTH = 300
"""Columns that the widest table may take: a terminal that is narrower breaks its lines, and none is cut."""

COLUMNS = {
    "point": "str",
    "repeat": "int64",
    "run_id": "str",
    "status": "str",
    "reason": "str",
    "busy_percent": "float64",
    "wall_ns": "Int64",
    **{f"{part}_ns": "Int64" for part in PARTS},
    "throughput": "float64",
    "samples_per_second": "float64",
    "test_accuracy": "float64",
    "bundle": "str",
}
"""Columns of `frame`, besides those of the fields in which the points differ, which come after `point` and `repeat`.

`repeat` counts from 1. `reason` is why a run is not ok, else empty. `busy_percent`: how busy the machine's cores were
before the run. `throughput` is in samples per second after the first ten steps, `samples_per_second` from the first
batch to the last step. What was not measured is missing, not 0."""


def load(path: str | Path) -> pd.DataFrame:
    """The frame of a series' file. Raises BundleError."""
    return frame(scheduling.load(Path(path)))


def frame(series: Series) -> pd.DataFrame:
    """One row per run that is over, in the order of repeats and points; columns as in `COLUMNS`.

    Its `attrs` have `axes`, the names of the sweep's axes; `scaling`, what it kept; and `seed`, that of the order.
    """
    varying = differing(series.points.values())
    busy = series.busy()
    rows = []
    for cell, bundle in sorted(series.ended().items()):
        run = bundle.read()
        values = asdict(series.points[cell.point])
        rows.append(
            {
                "point": cell.point,
                "repeat": cell.repeat,
                **{name: values[name] for name in varying},
                "run_id": run.run_id,
                "status": run.status,
                "reason": run.reason or "",
                "busy_percent": busy[run.run_id],
                **_figures(run),
                "bundle": str(bundle.path),
            }
        )
    names = ["point", "repeat", *varying, *(name for name in COLUMNS if name not in ("point", "repeat"))]
    made = pd.DataFrame(rows, columns=names).astype(COLUMNS)
    made.attrs = {"axes": list(series.axes), "scaling": series.scaling, "seed": series.seed}
    return made


def differing(points: Iterable[Runnable]) -> tuple[str, ...]:
    """The fields in which experiments differ, in their order; the name is none."""
    every = [asdict(point) for point in points]
    return tuple(
        name
        for name in every[0]
        if name != "name" and any(values.get(name) != every[0][name] for values in every)
    )  # fmt: skip


def write_csv(series: Series) -> Path:
    """Writes `frame` beside the series' file, as `sweep-KEY.csv`; returns its path. Raises BundleError."""
    path = series.out / f"sweep-{series.key}.csv"
    try:
        replace_file(path, frame(series).to_csv(index=False).encode())
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror}.", "choose another --out") from error
    return path


def table(points: Runs, console: Console) -> None:
    """Prints one row per point: wall, throughput and accuracy; then the layers. Mean and standard deviation."""
    sound = {label: [run for run in runs if run.status == "ok"] for label, runs in points.items()}
    console.print("Points, mean ± standard deviation of the runs that are ok")
    rows = plain_table("point", "ok", "wall, s", "samples/s", "accuracy")
    for label, runs in sound.items():
        figures = (wall_s, throughput, metric("test_accuracy"))
        rows.add_row(label, f"{len(runs)}/{len(points[label])}", *(spread(runs, figure) for figure in figures))
    console.print(rows)
    console.print("\nLayers, seconds of the wall, mean ± standard deviation")
    shown = [part for part in PARTS if any(layer_s(run, part) for runs in sound.values() for run in runs)]
    rows = plain_table("point", *map(title, shown))
    for label, runs in sound.items():
        rows.add_row(label, *(spread(runs, partial(layer_s, layer=part)) for part in shown))
    console.print(rows)
    say_left_out(points, console)


def spread(runs: Sequence[Run], value: Callable[[Run], float | None]) -> str:
    """Mean and standard deviation (n - 1) of what was measured; of one run alone only its value."""
    known = [found for run in runs if (found := value(run)) is not None]
    if not known:
        return "-"
    mean = statistics.fmean(known)
    digits = 0 if mean >= 1000 else 3
    return f"{mean:.{digits}f}" + (f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else "")


def _figures(run: Run) -> dict[str, Any]:
    layers = {layer.layer: layer.ns for layer in run.layers}
    absent = {row.layer for row in run.not_measured} - set(layers)
    given = {part: layers.get(part, 0) for part in LAYERS if part not in absent} if layers else {}
    return {
        "wall_ns": run.wall_ns,
        **{f"{part}_ns": given.get(part) for part in LAYERS},
        f"{UNATTRIBUTED}_ns": run.unattributed_ns,
        "throughput": throughput(run),
        "samples_per_second": run.metrics.samples_per_second,
        "test_accuracy": run.metrics.test_accuracy,
    }
