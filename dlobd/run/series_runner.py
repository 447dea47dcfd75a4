"""Runs a series: the missing runs of its points, interleaved on one cluster. See `dlobd.experiment.series`."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from dlobd.bundle.store import Bundle
from dlobd.errors import DlobdError, UsageError
from dlobd.experiment.series import Cell, Series, StartedRun, load, write
from dlobd.record.run import Run
from dlobd.run import runner
from dlobd.run.observer import Report, RunObserver, prefixed
from dlobd.run.place import embedded, external
from dlobd.run.place.base import Lent
from dlobd.run.place.external import ExternalCluster, ExternalHadoop
from dlobd.run.preflight.cluster import check_capacity
from dlobd.run.run_record import SetupTimes
from dlobd.schema import Runnable

LOOK_S = 1.0
LOOKS = 5
QUIET_PERCENT = 15.0


def opened(
    points: Mapping[str, Runnable],
    seed: int,
    out: Path,
    external_cluster: ExternalCluster | None = None,
    axes: tuple[str, ...] = (),
    scaling: str = "",
) -> Series:
    """Open the series of these points in `out`, or create it in memory; see `Series`.
    Raises UsageError if `points` is empty, BundleError if the file exists and is damaged or of a newer version."""
    if not points:
        raise UsageError("A series needs an experiment.", "name an experiment, for example softmax-mnist")
    cluster = external_cluster.read().fs_uri if external_cluster else ""
    series = Series(dict(points), seed, out, cluster=cluster, axes=axes, scaling=scaling)
    for point in points.values() if external_cluster else ():
        external.check(point)
    return replace(load(series.path), axes=axes, scaling=scaling) if series.path.exists() else series


class _Recorder(RunObserver):
    """Observer that writes each new run to the series' file before its job starts."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.cell = Cell(0, "")
        self.busy_percent = 0.0

    def created(self, bundle: Bundle) -> None:
        started = StartedRun(self.cell.repeat, self.cell.point, bundle.run_id, self.busy_percent)
        self.series = replace(self.series, begun=(*self.series.begun, started))
        write(self.series)


def run(
    series: Series, repeats: int, report: Report, keep: Report, external_cluster: ExternalCluster | None = None
) -> Series:
    """Execute the missing runs until every point has `repeats` runs. A failed run does not end the series.

    All missing requirements of the points are reported before the first run: `keep` receives a line per point that
    cannot run here, and later a line per ended run. `external_cluster` is that of `opened`.

    Raises the errors of `runner.run`. Earlier runs are kept, and an interrupted run is repeated next time.
    """
    cells = series.order(repeats)
    ended = series.ended()
    left = [cell for cell in cells if cell not in ended]
    if not left:
        return series
    points = {label: series.points[label] for label in sorted({cell.point for cell in left})}
    alone = len(series.points) == 1
    _check(points, alone, keep, lambda point: runner.check(point, external_cluster))
    write(series)
    start_s = time.monotonic()
    recorder = _Recorder(series)
    with ExitStack() as stack:
        cluster: Lent = None
        if external_cluster:
            cluster = hadoop = ExternalHadoop.open(external_cluster, prefixed(report, "prepare"))
            _check(points, alone, keep, lambda point: check_capacity(point, hadoop.web))
            hadoop.supply(SetupTimes())
        elif any(point.scheduler != "none" for point in points.values()):
            cluster = stack.enter_context(embedded.cluster(SetupTimes(), report))
        for done, cell in enumerate(left, 1):
            # only the daemons should run at this point: other processes disturb the run
            recorder.cell, recorder.busy_percent = cell, settled_busy_percent()
            path = runner.run(points[cell.point], series.out, report, cluster, recorder)
            spent_s = time.monotonic() - start_s
            left_s = spent_s / done * (len(left) - done)
            keep(_line(cells.index(cell) + 1, len(cells), cell.point, Bundle(path).read(), left_s))
    return recorder.series


def _check(points: Mapping[str, Runnable], alone: bool, keep: Report, check: Callable[[Runnable], object]) -> None:
    """Raise the first error of `check`; if the series has several points, report all errors before."""
    errors: dict[str, DlobdError] = {}
    for label, point in points.items():
        try:
            check(point)
        except DlobdError as error:
            errors[label] = error
    if not errors:
        return
    first = next(iter(errors.values()))
    if alone:
        raise first
    for label, failure in errors.items():
        keep(f"{label}: {failure.line}")
    raise type(first)(f"{len(errors)} of {len(points)} points cannot be run here.", "omit or change them")


def busy_percent(seconds: float | None = None) -> float:
    """Measure the utilisation of all cores. The load average would still include the previous run."""
    return round(psutil.cpu_percent(interval=seconds or LOOK_S), 1)


def settled_busy_percent() -> float:
    """Return `busy_percent`. A high value is measured again, because processes of the previous run may be ending."""
    for _ in range(LOOKS):
        if (busy := busy_percent()) < QUIET_PERCENT:
            break
    return busy


def _line(number: int, of: int, label: str, record: Run, left_s: float) -> str:
    wall = f"{record.wall_ns / 1e9:.1f} s" if record.wall_ns else "no wall time"
    rest = "last run" if not left_s else f"about {left_s / 60:.0f} min left"
    at = datetime.now(UTC).strftime("%H:%M")
    why = f" ({record.reason})" if record.reason else ""
    return f"run {number} of {of}: {label} {record.status}{why}, {wall}; {at} UTC, {rest}"
