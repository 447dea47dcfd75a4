"""Lists and removes the files that dlobd keeps on this machine. Files of other programs are never touched."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dlobd.bundle import store
from dlobd.errors import BundleError, Busy, SetupError
from dlobd.hadoop.embedded.state import WorkDirLock, read_state
from dlobd.paths import CLUSTER, FETCHED, NATIVE, cache_dir, cluster_dir, links_dir, using_cache
from dlobd.run.orphans import SUBMITTED

_CACHE = {
    "jars": "Hadoop's jars, downloaded again when needed",
    "daemons": "Hadoop's jars and an archive of their classes for faster starts, written again when needed",
    "java": "the wrapper around a bundled Java, built again when needed",
    "crashes": "tracebacks of unexpected failures",
    "packages": "packages of --with and --requirements, installed again when needed",
    "packed": "dlobd's package for external clusters, written again when needed",
    SUBMITTED: "notes about running applications",
    FETCHED: "downloaded data sets; `dlobd data fetch` downloads them again",
    "remote": "Spark's configuration for external clusters",
    NATIVE: "data sets and outputs of launcher native",
    CLUSTER: "the embedded cluster: HDFS content, logs, configuration",
}
"""Entries of the cache directory; dlobd removes no other files there."""


RUNS = "runs"
SELFTEST = "selftest"
"""Directory of self-test bundles below the directory of runs. A self-test must not be compared with a run."""


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Files that are removed together."""

    name: str
    title: str
    paths: tuple[Path, ...]
    size_bytes: int


def kept(out: Path) -> list[KeptFiles]:
    """Return the entries of the cache and the run bundles below `out` that exist."""
    runs = tuple(bundle.path for bundle in store.bundles(out))
    series = (path for name in ("series", "sweep") for path in out.glob(f"{name}-{'?' * 12}.*"))
    entries: list[tuple[str, str, tuple[Path, ...]]] = [
        *((name, title, (cache_dir() / name,)) for name, title in _CACHE.items()),
        ("links", "links to directories whose names Spark and Hadoop cannot use", (links_dir(),)),
        (RUNS, f"{len(runs)} run bundles in {out}, and files of series", (*runs, *series)),
        (SELFTEST, "bundles of self-tests and their injected delays", (out / SELFTEST,)),
    ]
    return [
        KeptFiles(name, title, paths, sum(map(_size_bytes, paths)))
        for name, title, paths in entries
        if any(path.exists() for path in paths)
    ]


@contextmanager
def unused(entries: Sequence[KeptFiles]) -> Iterator[None]:
    """Hold the locks of the cache and of its cluster, so that no command uses the entries.
    Raises Busy if a command, a cluster or a run uses them."""
    directory = cluster_dir()
    lock = WorkDirLock(directory)
    if directory.exists():
        lock.acquire()
    try:
        state = read_state(directory)
        if state is not None and state.alive():
            raise Busy(f"a cluster is running in {directory}.", "dlobd cluster down")
        for path in (path for entry in entries if entry.name == RUNS for path in entry.paths):
            if (running := _running(path)) is not None:
                raise Busy(f"run {path.name} has not ended (pid {running}).", "wait for it to finish, or stop it")
        with using_cache(alone=True):
            yield
    finally:
        lock.release()


def _running(path: Path) -> int | None:
    """Return the pid of the run of a bundle; None if it has ended, or `path` is no bundle."""
    try:
        process = store.Bundle(path).read().process
    except BundleError:
        return None
    return process.pid if process else None


def remove(entry: KeptFiles) -> None:
    """Remove an entry; the caller holds the locks of `unused`. Raises SetupError if a file cannot be removed."""
    for path in entry.paths:
        if path.is_symlink():  # a user has moved the directory, and its target may contain other files
            raise SetupError(f"{path} is a symbolic link to {path.resolve()} and is not removed.", "remove it by hand")
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            raise SetupError(f"{path} cannot be removed: {error.filename}: {error.strerror}.") from error
        if entry.name == RUNS and path.parent.exists() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _size_bytes(path: Path) -> int:
    """Return the disk usage of a tree. A file with several names counts once."""
    counted: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                stat = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) not in counted:
                counted.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total
