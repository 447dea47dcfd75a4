"""Common code of `dlobd run` with several experiments and `dlobd sweep`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlobd.cli.options import EXIT_CODES

if TYPE_CHECKING:
    from dlobd.bundle.store import Bundle
    from dlobd.experiment.series import Cell, Series
    from dlobd.record.run import Run
    from dlobd.run.place.external import ExternalCluster

    Shown = Callable[[Series, Mapping[Cell, Bundle], Mapping[str, Sequence[Run]]], None]


def run_series(series: Series, repeats: int, dry_run: bool, cluster: ExternalCluster | None, shown: Shown) -> int:
    """Make the missing runs of a series; return the exit code of the worst run.

    Args:
        dry_run: only print every run in order, with the ID of runs that exist.
        shown: prints the results from the series, the bundles of these repeats, and the runs by point.
    """
    if dry_run:
        ended = series.ended()
        for number, cell in enumerate(series.order(repeats), 1):
            there = f"  {ended[cell].run_id}" if cell in ended else ""
            print(f"{number:4}  repeat {cell.repeat}  {cell.point}{there}")
        return 0
    from dlobd.run import series as scheduling
    from dlobd.run.progress import Progress

    with Progress() as progress:
        series = scheduling.run(series, repeats, progress, progress.keep, cluster)
    bundles = {cell: bundle for cell, bundle in sorted(series.ended().items()) if cell.repeat <= repeats}
    found = {label: [b.read() for cell, b in bundles.items() if cell.point == label] for label in series.points}
    shown(series, bundles, found)
    for cell, bundle in bundles.items():
        print(f"{cell.point}, repeat {cell.repeat}: {bundle.path}")
    print(f"series: {series.path}")
    return max(EXIT_CODES[run.status] for each in found.values() for run in each)
