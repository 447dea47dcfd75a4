"""Data frame of a sweep, with one row per run."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from dlobd.compare.figures import PARTS, layer_ns, throughput
from dlobd.compare.runset import of_series
from dlobd.errors import BundleError
from dlobd.experiment import series as scheduling
from dlobd.experiment.series import Series
from dlobd.paths import replace_file

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
"""Columns of `frame`. Settings that differ between points follow `point` and `repeat`.

`repeat` counts from 1. `reason` explains a status other than ok. `busy_percent`: load of the cores before the run.
`throughput` is in samples per second after the first ten steps, `samples_per_second` from the first batch to the last
step. A value that was not measured is missing, not 0."""


def load(path: str | Path) -> pd.DataFrame:
    """Read the frame of a series from the path of its file. Raises BundleError."""
    return frame(scheduling.load(Path(path)))


def frame(series: Series) -> pd.DataFrame:
    """Build one row per finished run, in the order of repeats and points; see `COLUMNS`. Its `attrs` hold the sweep's
    `axes` and `scaling`, and the `seed` of the run order."""
    every = [asdict(point) for point in series.points.values()]
    fields = [name for name in every[0] if name != "name" and any(one.get(name) != every[0][name] for one in every)]
    bundles = {bundle.run_id: bundle.path for bundle in series.ended().values()}
    members = sorted(of_series(series).members, key=lambda member: (member.repeat, member.point))
    rows = [
        {
            "point": member.point,
            "repeat": member.repeat.number,
            **{name: getattr(series.points[member.point], name, None) for name in fields},
            "run_id": member.run.run_id,
            "status": member.run.status,
            "reason": member.run.reason or "",
            "busy_percent": member.busy_percent,
            "wall_ns": member.run.wall_ns,
            **{f"{part}_ns": layer_ns(member.run, part) for part in PARTS},
            "throughput": throughput(member.run),
            "samples_per_second": member.run.metrics.samples_per_second,
            "test_accuracy": member.run.metrics.test_accuracy,
            "bundle": str(bundles[member.run.run_id]),
        }
        for member in members
    ]
    names = ["point", "repeat", *fields, *(name for name in COLUMNS if name not in ("point", "repeat"))]
    made = pd.DataFrame(rows, columns=names).astype(COLUMNS)
    made.attrs = {"axes": list(series.axes), "scaling": series.scaling, "seed": series.seed}
    return made


def write_csv(series: Series) -> Path:
    """Write `frame` as `sweep-KEY.csv` next to the series' file; return its path. Raises BundleError."""
    path = series.out / f"sweep-{series.key}.csv"
    try:
        replace_file(path, frame(series).to_csv(index=False).encode())
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror}.", "choose another --out") from error
    return path
