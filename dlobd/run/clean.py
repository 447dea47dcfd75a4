"""What dlobd keeps on this machine, how large it is, and how it is removed. Only what dlobd made is touched."""

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
    "jars": "Hadoop's jars, fetched again when needed",
    "daemons": "those jars and an archive of their classes, for fast starts, made again when needed",
    "java": "the wrapper around a bundled Java, built again when needed",
    "crashes": "tracebacks of unexpected failures",
    "packed": "dlobd itself, as external clusters get it",
    SUBMITTED: "which dlobd watches which application",
    FETCHED: "data sets that were fetched, fetched again with `dlobd data fetch`",
    "remote": "Spark's configuration for such clusters",
    NATIVE: "data sets and outputs of launcher native",
    CLUSTER: "the embedded cluster: HDFS content, logs, configuration",
}
"""Entries of the cache directory; dlobd removes nothing else in it."""


SELFTEST = "selftest"
"""Where self-tests put their bundles, below that of all others: they are no runs to be compared."""


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Something on disk. `paths` are removed together."""

    name: str
    title: str
    paths: tuple[Path, ...]
    size_bytes: int


def kept(out: Path) -> list[KeptFiles]:
    """What is in the cache, and the run bundles under `out`; empty entries are left out."""
    entries = [KeptFiles(name, title, (cache_dir() / name,), 0) for name, title in _CACHE.items()]
    # after the cluster, whose running daemons use them
    entries.append(
        KeptFiles("links", "names for directories that Spark and Hadoop cannot take as they are", (links_dir(),), 0)
    )
    runs = tuple(bundle.path for bundle in store.bundles(out))
    entries.append(KeptFiles("runs", f"{len(runs)} run bundles in {out}", runs, 0))
    entries.append(KeptFiles(SELFTEST, "bundles of self-tests, and what was injected", (out / SELFTEST,), 0))
    sized = [KeptFiles(e.name, e.title, e.paths, sum(map(_size_bytes, e.paths))) for e in entries]
    return [entry for entry in sized if any(path.exists() for path in entry.paths)]


def remove(entry: KeptFiles) -> None:
    """Removes it.

    Raises:
        Busy: a cluster runs there.
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
        if path.is_symlink():  # moved elsewhere by a user: other files may lie there too
            raise SetupError(f"{path} is a symbolic link to {path.resolve()} and is not removed.", "remove it by hand")
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise SetupError(f"{path} cannot be removed: {error.filename}: {error.strerror}.") from error
        if entry.name == "runs" and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _size_bytes(path: Path) -> int:
    """What a tree takes on disk; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                stat = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total
