"""Several runs, one after the other, on one cluster: each point as often as was asked for, interleaved.

A point is an experiment with a label. Repeat r takes each point once, in an order of its own (a randomised block
design): what drifts while a series runs, drifts for all points alike. The order is drawn from the seed, so that more
repeats go on where fewer have ended.

A series is a file in the directory of the bundles, `series-KEY.json`; KEY stands for the points and the seed. It is
written before the first run and whenever a run begins, so that the same command goes on after any end, kill -9
included: a run whose bundle says how it ended is not repeated, one that was interrupted is.
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

from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, DlobdError, UsageError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.hadoop.web import HadoopWeb
from dlobd.paths import replace_file
from dlobd.record.run import Run
from dlobd.run import runner
from dlobd.run.deploy import choice, embedded, external
from dlobd.run.deploy.base import Lent
from dlobd.run.deploy.external import ExternalCluster
from dlobd.schema import Runnable

VERSION = 1
LOOK_S = 1.0
LOOKS = 5
QUIET_PERCENT = 15.0
ENDED = ("ok", "failed", "invalid")
"""The status of a run that is over; it is not repeated."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One run to be made: a point in one repeat, counted from 1."""

    repeat: int
    point: str


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was begun for a cell; `busy_percent` is how busy the machine's cores were just before it."""

    repeat: int
    point: str
    run_id: str
    busy_percent: float


@dataclass(frozen=True, slots=True)
class Series:
    """What is to be run, and what was begun. `points` is label to experiment.

    axes, scaling: of a sweep, the fields in which its points were made to differ, and what it kept; see
        `dlobd.experiment.sweeps`. They say what the points are, and are no part of the key.
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
        """Of points, seed and cluster: equal ones, equal key."""
        facts = [self.seed, sorted((label, key(point)) for label, point in self.points.items())]
        facts += [self.cluster] if self.cluster else []
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    @property
    def path(self) -> Path:
        """The series' file."""
        return self.out / f"series-{self.key}.json"

    def order(self, repeats: int) -> list[Cell]:
        """Every cell of so many repeats, in the order in which they are run."""
        cells = []
        for repeat in range(1, repeats + 1):
            labels = sorted(self.points)
            random.Random(f"{self.seed} {repeat}").shuffle(labels)
            cells += [Cell(repeat, label) for label in labels]
        return cells

    def ended(self) -> dict[Cell, Bundle]:
        """The bundles of runs that are over, by cell."""
        found = {}
        for begun in self.begun:
            bundle = Bundle((self.out / self.points[begun.point].name / begun.run_id).resolve())
            try:
                over = bundle.read().status in ENDED and (bundle.path / "hashes").exists()
            except BundleError:
                continue  # it was killed before it had a record, or was removed: as if it had not begun
            if over:
                found[Cell(begun.repeat, begun.point)] = bundle
        return found

    def busy(self) -> dict[str, float]:
        """Run id to how busy the machine's cores were before it, in percent of all of them."""
        return {begun.run_id: begun.busy_percent for begun in self.begun}


def opened(
    points: Mapping[str, Runnable],
    seed: int,
    out: Path,
    external_cluster: ExternalCluster | None = None,
    axes: tuple[str, ...] = (),
    scaling: str = "",
) -> Series:
    """The series of these points in `out`: as its file has it, or new; not written.

    Args:
        external_cluster: an external cluster.
        axes, scaling: of a sweep; see `Series`.

    Raises:
        UsageError: there is no point.
        BundleError: the file is there and damaged, or of a newer version.
    """
    if not points:
        raise UsageError("A series needs an experiment.", "name one, for example softmax-mnist")
    cluster = external_cluster.read().fs_uri if external_cluster else ""
    series = Series(dict(points), seed, out, cluster=cluster, axes=axes, scaling=scaling)
    for point in points.values() if external_cluster else ():
        external.check(point)
    try:
        kept = json.loads(series.path.read_text())
    except FileNotFoundError:
        return series
    except (OSError, ValueError) as error:
        raise BundleError(f"{series.path} cannot be read: {error}.", "remove it to start over") from None
    return replace(read(kept, series.path), axes=axes, scaling=scaling)


def load(path: Path) -> Series:
    """The series in a file.

    Raises:
        BundleError: it cannot be read, is damaged or of a newer version.
    """
    try:
        return read(json.loads(path.read_text()), path)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be read: {error}.") from None


def read(kept: Any, path: Path) -> Series:
    """What `write` has written. Raises BundleError."""
    try:
        if kept["series_version"] > VERSION:
            raise BundleError(f"{path} was written by a newer dlobd.", "use that version")
        points = {label: from_dict(values, str(path)) for label, values in kept["points"].items()}
        begun = tuple(StartedRun(**one) for one in kept["begun"])
        sweep = kept.get("sweep", {"axes": (), "scaling": ""})
        axes = tuple(str(name) for name in sweep["axes"])
        return Series(points, kept["seed"], path.parent, begun, kept.get("cluster", ""), axes, sweep["scaling"])
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        raise BundleError(f"{path} is damaged: {error}.", "remove it to start over") from None


def write(series: Series) -> None:
    """Writes the series' file, so that at any instant the old one or the new one is there. Raises BundleError."""
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


def run(
    series: Series, repeats: int, progress: Progress, told: Progress, external_cluster: ExternalCluster | None = None
) -> Series:
    """Makes the runs that are missing up to so many repeats; a run that fails does not end the series.

    What every point lacks on this machine is said before the first run, one line a point.

    Args:
        progress: gets the steps of each run.
        told: gets one line per run that has ended, and one per point that cannot be run here, if several cannot.
        external_cluster: the external cluster of `opened`; the environment is uploaded once for all runs.

    Raises:
        SetupError, ClusterError, Busy: a run could not be submitted; what was run stays.
        Interrupted: by Ctrl-C or SIGTERM; the run that it hit is repeated next time.
    """
    cells = series.order(repeats)
    ended = series.ended()
    left = [cell for cell in cells if cell not in ended]
    if not left:
        return series
    labels = {cell.point for cell in left}
    _check(series, labels, told, lambda point: runner.check(point, external_cluster))
    write(series)
    began_s = time.monotonic()
    with ExitStack() as stack:
        cluster: Lent = None
        if external_cluster:

            def ask(web: HadoopWeb) -> None:
                _check(series, labels, told, lambda point: external.check_capacity(point, web, progress))

            cluster = external.reached(external_cluster, {}, progress, ask)
        elif any(choice.needs_cluster(series.points[cell.point]) for cell in left):
            cluster = stack.enter_context(embedded.cluster(default_settings(), {}, progress))
        for done, cell in enumerate(left, 1):
            busy = settled_busy_percent()  # the daemons alone: whatever else is seen disturbs the run

            def note(bundle: Bundle, cell: Cell = cell, busy: float = busy) -> None:
                nonlocal series
                begun = StartedRun(cell.repeat, cell.point, bundle.run_id, busy)
                series = replace(series, begun=(*series.begun, begun))
                write(series)

            path = runner.run(series.points[cell.point], series.out, progress, cluster, note)
            spent_s = time.monotonic() - began_s
            left_s = spent_s / done * (len(left) - done)
            told(_line(cells.index(cell) + 1, len(cells), cell.point, Bundle(path).read(), left_s))
    return series


def _check(series: Series, labels: set[str], told: Progress, check: Callable[[Runnable], None]) -> None:
    """Raises what `check` raises of these points; of several, tells all of it first."""
    lacking: dict[str, DlobdError] = {}
    for label in sorted(labels):
        try:
            check(series.points[label])
        except DlobdError as error:
            lacking[label] = error
    if not lacking:
        return
    first = next(iter(lacking.values()))
    if len(series.points) == 1:
        raise first
    for label, why in lacking.items():
        told(f"{label}: {why.line}")
    raise type(first)(f"{len(lacking)} of {len(series.points)} points cannot be run here.", "omit or change them")


def busy_percent(seconds: float | None = None) -> float:
    """How busy the machine's cores are, sampled for so many seconds. The load average would count the previous run."""
    return round(psutil.cpu_percent(interval=seconds or LOOK_S), 1)


def settled_busy_percent() -> float:
    """As `busy_percent`, looked at again a few times while it is high: the last run may still be leaving."""
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
