"""A series: repeated runs of several points on one cluster, interleaved.

A point is an experiment with a label. Each repeat runs every point once, in a new random order (a randomised block
design), so that drift during the series affects all points alike. The seed determines the order, so that a later
command with more repeats continues the same series.

A series is a file in the directory of the bundles, `series-KEY.json`; KEY is a hash of the points and the seed. It is
written before the first run and at the start of every run, so that the same command resumes it after any end, even
kill -9. Runs that have ended are not repeated; interrupted ones are.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from dlobd.bundle.run import Run
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, DlobdError, UsageError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.paths import replace_file
from dlobd.run import runner
from dlobd.run.observer import Report, RunObserver, prefixed
from dlobd.run.place import embedded, external
from dlobd.run.place.base import Lent, needs_cluster
from dlobd.run.place.external import ExternalCluster, ExternalHadoop
from dlobd.run.preflight.cluster import check_capacity
from dlobd.run.run_record import SetupTimes
from dlobd.schema import Runnable

VERSION = 1
LOOK_S = 1.0
LOOKS = 5
QUIET_PERCENT = 15.0
ENDED = ("ok", "failed", "invalid")
"""Status of runs that have ended and are not repeated."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A planned run: a point in one repeat, counted from 1."""

    repeat: int
    point: str


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was started for a cell; `busy_percent` is the utilisation of the cores just before it."""

    repeat: int
    point: str
    run_id: str
    busy_percent: float


@dataclass(frozen=True, slots=True)
class Series:
    """Planned and started runs.

    Args:
        points: experiments by label.
        axes, scaling: for a sweep, the fields that vary and the scaling; see `dlobd.experiment.sweeps`. They describe
            the points and are not part of the key.
    """

    points: Mapping[str, Runnable]
    seed: int
    out: Path
    begun: tuple[StartedRun, ...] = ()
    cluster: str = ""  # an external one, by its file system; runs on two clusters are not compared
    axes: tuple[str, ...] = ()
    scaling: str = ""

    @property
    def key(self) -> str:
        """Hash of points, seed and cluster."""
        facts = [self.seed, sorted((label, key(point)) for label, point in self.points.items())]
        facts += [self.cluster] if self.cluster else []
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    @property
    def path(self) -> Path:
        """Path of the series' file."""
        return self.out / f"series-{self.key}.json"

    def order(self, repeats: int) -> list[Cell]:
        """Returns the cells of a number of repeats in run order."""
        cells = []
        for repeat in range(1, repeats + 1):
            labels = sorted(self.points)
            random.Random(f"{self.seed} {repeat}").shuffle(labels)
            cells += [Cell(repeat, label) for label in labels]
        return cells

    def ended(self) -> dict[Cell, Bundle]:
        """Returns the bundles of ended runs by cell."""
        bundles = {}
        for begun in self.begun:
            bundle = Bundle((self.out / self.points[begun.point].name / begun.run_id).resolve())
            try:
                over = bundle.read().status in ENDED and (bundle.path / "hashes").exists()
            except BundleError:
                continue  # removed, or killed before it had a record: it counts as not started
            if over:
                bundles[Cell(begun.repeat, begun.point)] = bundle
        return bundles

    def busy(self) -> dict[str, float]:
        """Returns the utilisation of all cores before each run, in percent, by run ID."""
        return {begun.run_id: begun.busy_percent for begun in self.begun}


def opened(
    points: Mapping[str, Runnable],
    seed: int,
    out: Path,
    external_cluster: ExternalCluster | None = None,
    axes: tuple[str, ...] = (),
    scaling: str = "",
) -> Series:
    """Opens the series of these points in `out`, or creates it in memory.

    Args:
        external_cluster: an external cluster.
        axes, scaling: see `Series`.

    Raises:
        UsageError: `points` is empty.
        BundleError: the file exists and is damaged or of a newer version.
    """
    if not points:
        raise UsageError("A series needs an experiment.", "name one, for example softmax-mnist")
    cluster = external_cluster.read().fs_uri if external_cluster else ""
    series = Series(dict(points), seed, out, cluster=cluster, axes=axes, scaling=scaling)
    for point in points.values() if external_cluster else ():
        external.check(point)
    try:
        document = json.loads(series.path.read_text())
    except FileNotFoundError:
        return series
    except (OSError, ValueError) as error:
        raise BundleError(f"{series.path} cannot be read: {error}.", "remove it to start over") from None
    return replace(read(document, series.path), axes=axes, scaling=scaling)


def load(path: Path) -> Series:
    """Reads a series from its file.

    Raises:
        BundleError: it cannot be read, is damaged or of a newer version.
    """
    try:
        return read(json.loads(path.read_text()), path)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be read: {error}.") from None


def read(document: Any, path: Path) -> Series:
    """Parses the document that `write` wrote. Raises BundleError."""
    if not isinstance(document, dict):
        raise BundleError(f"{path} is damaged: it is no object.", "remove it to start over")
    try:
        if document["series_version"] > VERSION:
            raise BundleError(f"{path} was written by a newer dlobd.", "use that version")
        points = {label: from_dict(values, str(path)) for label, values in document["points"].items()}
        begun = tuple(StartedRun(**one) for one in document["begun"])
        sweep = document.get("sweep", {"axes": (), "scaling": ""})
        axes = tuple(str(name) for name in sweep["axes"])
        return Series(points, document["seed"], path.parent, begun, document.get("cluster", ""), axes, sweep["scaling"])
    except (KeyError, TypeError, UsageError) as error:
        raise BundleError(f"{path} is damaged: {error}.", "remove it to start over") from None


def write(series: Series) -> None:
    """Replaces the series' file atomically. Raises BundleError."""
    document = {
        "series_version": VERSION,
        "seed": series.seed,
        **({"cluster": series.cluster} if series.cluster else {}),
        **({"sweep": {"axes": series.axes, "scaling": series.scaling}} if series.scaling else {}),
        "points": {label: asdict(point) for label, point in series.points.items()},
        "begun": [asdict(begun) for begun in series.begun],
    }
    try:
        series.out.mkdir(parents=True, exist_ok=True)
        replace_file(series.path, (json.dumps(document, indent=1) + "\n").encode())
    except OSError as error:
        raise BundleError(f"{series.path} cannot be written: {error.strerror}.", "choose another --out") from error


class _Recorder(RunObserver):
    """Writes each new run to the series' file before its job starts."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.cell = Cell(0, "")
        self.busy_percent = 0.0

    def created(self, bundle: Bundle) -> None:
        """Adds the run of the current cell."""
        started = StartedRun(self.cell.repeat, self.cell.point, bundle.run_id, self.busy_percent)
        self.series = replace(self.series, begun=(*self.series.begun, started))
        write(self.series)


def run(
    series: Series, repeats: int, report: Report, keep: Report, external_cluster: ExternalCluster | None = None
) -> Series:
    """Makes the missing runs up to a number of repeats. A failed run does not end the series.

    Everything that points lack on this machine is reported before the first run.

    Args:
        report: receives the steps of each run.
        keep: receives a line per ended run, and per point that cannot run here if there are several.
        external_cluster: the external cluster of `opened`; the environment is uploaded once for all runs.

    Raises:
        SetupError, ClusterError, Busy: a run could not be submitted; earlier runs stay.
        Interrupted: by Ctrl-C or SIGTERM; the interrupted run is repeated next time.
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
        elif any(needs_cluster(point) for point in points.values()):
            cluster = stack.enter_context(embedded.cluster(SetupTimes(), report))
        for done, cell in enumerate(left, 1):
            # only the daemons should run now: anything else disturbs the run
            recorder.cell, recorder.busy_percent = cell, settled_busy_percent()
            path = runner.run(points[cell.point], series.out, report, cluster, recorder)
            spent_s = time.monotonic() - start_s
            left_s = spent_s / done * (len(left) - done)
            keep(_line(cells.index(cell) + 1, len(cells), cell.point, Bundle(path).read(), left_s))
    return recorder.series


def _check(points: Mapping[str, Runnable], alone: bool, keep: Report, check: Callable[[Runnable], object]) -> None:
    """Raises the errors of `check`. If the series has several points, it first reports all of them."""
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
    """Measures the utilisation of all cores. The load average would still include the previous run."""
    return round(psutil.cpu_percent(interval=seconds or LOOK_S), 1)


def settled_busy_percent() -> float:
    """Like `busy_percent`, but repeats a high measurement: the previous run may still be ending."""
    for _ in range(LOOKS):
        if (busy := busy_percent()) < QUIET_PERCENT:
            break
    return busy


def _line(number: int, of: int, label: str, record: Run, left_s: float) -> str:
    wall = f"{record.wall_ns / 1e9:.1f} s" if record.wall_ns else "no wall"
    rest = "the last one" if not left_s else f"about {left_s / 60:.0f} min left"
    at = datetime.now(UTC).strftime("%H:%M")
    why = f" ({record.reason})" if record.reason else ""
    return f"run {number} of {of}: {label} {record.status}{why}, {wall}; {at} UTC, {rest}"
