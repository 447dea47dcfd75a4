"""Where dlobd's files lie: those that come with it, those that it keeps, and where pip put Spark.

A checkout has jobs, configuration and data sets at its top (`jobs/`, `yarn/`, `data/`); a wheel carries the same
folders under `dlobd/_shipped`. What can be fetched or built again is kept in the cache directory.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlobd.errors import SetupError

CLUSTER = "cluster"
NATIVE = "native"
"""Names in the cache directory."""

PACKAGE = Path(__file__).resolve().parent
"""The installed package: what a node gets as a zip, and what a process of ours needs on its path."""


def shipped(name: str) -> Path:
    """The folder or file `name`, such as `yarn` or `data/mnist`.

    Raises:
        SetupError: this installation does not hold it.
    """
    for top in (PACKAGE / "_shipped", PACKAGE.parent):
        path = top / name
        if path.exists():
            return path
    raise SetupError(f"{name!r} is not part of this installation of dlobd in {PACKAGE}.", "install dlobd again")


def spark_home() -> Path:
    """Where pip put Spark; PySpark is not imported.

    Raises:
        SetupError: it is not installed.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.origin:
        raise SetupError("The Python package pyspark is not installed.", "install dlobd with its dependencies again")
    return Path(found.origin).parent


def cluster_dir() -> Path:
    """The work directory of the one embedded cluster that `dlobd run` and `dlobd cluster` share."""
    return cache_dir() / CLUSTER


def native_dir() -> Path:
    """Data sets and outputs of jobs that run without HDFS."""
    return cache_dir() / NATIVE


def cache_dir() -> Path:
    """`$DLOBD_CACHE`, else `$XDG_CACHE_HOME/dlobd`, else `~/.cache/dlobd`; not created."""
    own = os.environ.get("DLOBD_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification says that a relative path is to be ignored
    root = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return root / "dlobd"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for and holds the lock file at `path`. The kernel frees it when the process ends, however it ends.

    Raises:
        SetupError: the directory cannot be written.
    """
    make_writable(path.parent)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_writable(directory: Path) -> None:
    """Makes a directory. Raises SetupError if this user cannot write there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"user id {os.getuid()} may not write there")
    except OSError as error:
        raise SetupError(
            f"The directory {directory} cannot be used: {error}.", "set DLOBD_CACHE to one that you may write."
        ) from error
