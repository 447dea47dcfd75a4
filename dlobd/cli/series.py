"""Selection and output of runs that several commands share: `latest`, and the runs of a series."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd.cli.options import EXIT_CODES
from dlobd.cli.printing import console
from dlobd.errors import UsageError

if TYPE_CHECKING:
    from dlobd.bundle.store import Bundle
    from dlobd.experiment.series import Cell, Series


def find_run(ref: str, out: Path) -> Bundle:
    """Return the bundle of a run, see `store.find`; print a note if `latest` skips a run that has not finished.
    Raises UsageError if `out` is the name of a file."""
    from dlobd.bundle import store

    if out.suffix and not out.is_dir():
        raise UsageError(f"--out {out}: there is no such directory of runs.", f"name an output file with -o {out}")
    bundle = store.find(ref, out)
    if ref == store.LATEST and (newest := store.bundles(out)[-1]) != bundle:
        print(f"dlobd: run {newest.run_id} has not finished; latest is {bundle.run_id}", file=sys.stderr)
    return bundle


def print_series(series: Series, bundles: dict[Cell, Bundle]) -> int:
    """Print the tables of a series, the comparison of its points, and the bundles; return the highest exit code."""
    from dlobd.compare.comparison import compare
    from dlobd.compare.runset import of_series
    from dlobd.report import repeats as tables
    from dlobd.report.comparison import show

    points = of_series(series, bundles).points()
    found = {label: point.runs for label, point in points.items()}
    shown = console(tables.WIDTH if series.scaling else None)
    (tables.sweep_table if series.scaling else tables.table)(found, shown)
    baseline, *others = points.values()
    if others and not series.scaling:
        shown.print()
        try:
            show(compare([(baseline, other) for other in others]), shown)
        except UsageError as error:
            shown.print(f"Not compared: {error.line}", soft_wrap=True)
    for cell, bundle in bundles.items():
        print(f"{cell.point}, repeat {cell.repeat}: {bundle.path}")
    print(f"series: {series.path}")
    return max(EXIT_CODES[run.status] for runs in found.values() for run in runs)
