"""A series: repeated runs of several points on one cluster, interleaved. A point is an experiment with a label.

Each repeat runs every point once, in a new random order (a randomised block design), so that drift affects all points
alike. The seed determines the order, so that more repeats continue the same series.

A series is a file in the directory of the bundles, `series-KEY.json`; KEY is a hash of the points and the seed. dlobd
writes the file at the start of every run, so that the same command resumes the series after any end, even kill -9.
Runs that have ended are not repeated.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, UsageError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.paths import replace_file
from dlobd.schema import Runnable

VERSION = 1
ENDED = ("ok", "failed", "invalid")
"""Status of runs that have ended and are not repeated."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A planned run: a point in one repeat, counted from 1."""

    repeat: int
    point: str


def shuffled(points: Iterable[str], repeats: int, seed: int) -> list[Cell]:
    """Return the cells of all points in a number of repeats; the order within a repeat is random."""
    cells = []
    for repeat in range(1, repeats + 1):
        labels = sorted(points)
        random.Random(f"{seed} {repeat}").shuffle(labels)
        cells += [Cell(repeat, label) for label in labels]
    return cells


@dataclass(frozen=True, slots=True)
class StartedRun(Cell):
    """A run that was started for a cell; `busy_percent` is the CPU utilisation just before the run."""

    run_id: str
    busy_percent: float


@dataclass(frozen=True, slots=True)
class Series:
    """Planned and started runs. `points` are experiments by label; `axes` and `scaling` belong to a sweep."""

    points: Mapping[str, Runnable]
    seed: int
    out: Path
    begun: tuple[StartedRun, ...] = ()
    cluster: str = ""  # file system of an external cluster; runs on different clusters are not compared
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
        """Return the cells of a number of repeats in run order."""
        return shuffled(self.points, repeats, self.seed)

    def ended(self) -> dict[Cell, Bundle]:
        """Return the bundles of ended runs by cell."""
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


def load(path: Path) -> Series:
    """Read a series from its file. Raises BundleError if it cannot be read, is damaged or of a newer version."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be read: {error}.", "remove it to start over") from None
    if not isinstance(document, dict):
        raise BundleError(f"{path} is damaged: it is not a JSON object.", "remove it to start over")
    try:
        if document["series_version"] > VERSION:
            raise BundleError(f"{path} was written by a newer dlobd.", "use that version")
        points = {label: from_dict(values, str(path)) for label, values in document["points"].items()}
        begun = tuple(StartedRun(**run) for run in document["begun"])
        sweep = document.get("sweep", {"axes": (), "scaling": ""})
        axes = tuple(str(name) for name in sweep["axes"])
        return Series(points, document["seed"], path.parent, begun, document.get("cluster", ""), axes, sweep["scaling"])
    except (KeyError, TypeError, UsageError) as error:
        raise BundleError(f"{path} is damaged: {error}.", "remove it to start over") from None


def write(series: Series) -> None:
    """Replace the series' file atomically. Raises BundleError if it cannot be written."""
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
