"""Lists and removes the files that dlobd keeps on this machine. Files of other programs are never touched."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from dlobd.bundle import store
from dlobd.errors import Busy, SetupError
from dlobd.hadoop.embedded.state import WorkDirLock, read_state
from dlobd.paths import CLUSTER, FETCHED, NATIVE, cache_dir, links_dir
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
    entries = [KeptFiles(name, title, (cache_dir() / name,), 0) for name, title in _CACHE.items()]
    # after the cluster, because running daemons use the links
    entries.append(
        KeptFiles("links", "links to directories whose names Spark and Hadoop cannot use", (links_dir(),), 0)
    )
    runs = tuple(bundle.path for bundle in store.bundles(out))
    entries.append(KeptFiles("runs", f"{len(runs)} run bundles in {out}", runs, 0))
    entries.append(KeptFiles(SELFTEST, "bundles of self-tests and their injected delays", (out / SELFTEST,), 0))
    sized = [KeptFiles(e.name, e.title, e.paths, sum(map(_size_bytes, e.paths))) for e in entries]
    return [entry for entry in sized if any(path.exists() for path in entry.paths)]


def remove(entry: KeptFiles) -> None:
    """Remove an entry.

    Raises:
        Busy: a cluster runs in it.
        SetupError: a file cannot be removed.
    """
    if entry.name != CLUSTER:
        _remove_all(entry)
        return
    (directory,) = entry.paths
    lock = WorkDirLock(directory)
    lock.acquire()
    try:
        state = read_state(directory)
        if state is not None and state.alive():
            raise Busy(f"a cluster is running in {directory}.", "dlobd cluster down")
        _remove_all(entry)
    finally:
        lock.release()


def _remove_all(entry: KeptFiles) -> None:
    for path in entry.paths:
        if path.is_symlink():  # a user has moved the directory, and its target may contain other files
            raise SetupError(f"{path} is a symbolic link to {path.resolve()} and is not removed.", "remove it by hand")
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise SetupError(f"{path} cannot be removed: {error.filename}: {error.strerror}.") from error
        if entry.name == "runs" and not any(path.parent.iterdir()):
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
