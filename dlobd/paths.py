"""Where dlobd's files lie: those that come with it, those that it keeps, and where pip put Spark; how one is written.

A checkout has jobs, configuration and data sets at its top (`jobs/`, `yarn/`, `data/`); a wheel carries the same
folders under `dlobd/_shipped`. What can be fetched or built again is kept in the cache directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlobd.errors import SetupError

CLUSTER = "cluster"
NATIVE = "native"
FETCHED = "data"
"""Names in the cache directory."""

TEMPORARY = Path("/tmp")
"""Holds the links of `plain`: not TMPDIR, which may differ between the command that starts a cluster and the next."""

_PLAIN = re.compile(r"[A-Za-z0-9_/.+@=~-]*")

PACKAGE = Path(__file__).resolve().parent
"""The installed package: what a node gets as a zip, and what dlobd's own processes need on their path."""


def shipped(name: str) -> Path:
    """The folder or file `name`, such as `yarn` or `data/mnist`.

    Raises:
        SetupError: this installation does not hold it.
    """
    for top in (PACKAGE / "_shipped", PACKAGE.parent):
        path = top / name
        if path.exists():
            return path
    raise SetupError(f"{name!r} is missing from the dlobd installation in {PACKAGE}.", "reinstall dlobd")


def data_file(name: str) -> Path | None:
    """The file `name` of a data set, such as `cifar-10/data_batch_1.bin`: in the folder that DLOBD_DATA names, among
    those that were fetched, or in a checkout. None if it is nowhere."""
    own = os.environ.get("DLOBD_DATA")
    tops = [Path(own).expanduser()] if own else []
    for top in (*tops, fetched_dir(), PACKAGE / "_shipped" / "data", PACKAGE.parent / "data"):
        if (top / name).is_file():
            return top / name
    return None


def fetched_dir() -> Path:
    """Data sets that `dlobd data fetch` fetched; not created."""
    return cache_dir() / FETCHED


def spark_home() -> Path:
    """Where pip put Spark; PySpark is not imported.

    Raises:
        SetupError: it is not installed.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.origin:
        raise SetupError("The Python package pyspark is not installed.", "reinstall dlobd with its dependencies")
    return plain(Path(found.origin).parent)


def python() -> Path:
    """The interpreter that runs this, by a plain name below which it finds its virtual environment."""
    executable = Path(sys.executable)
    return plain(executable.parent.parent) / executable.parent.name / executable.name


def python_path() -> str:
    """PYTHONPATH for a child of this process: what finds this dlobd comes first."""
    return os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def plain(path: Path, longest: int | None = None) -> Path:
    """`path` by a name that Spark's and Hadoop's scripts, URIs and configuration files leave as it is.

    They split or replace spaces, quotes, commas, dollars and letters beyond ASCII. Where the path has one, a link in
    `/tmp/dlobd-UID` stands for all up to the last such part. It stays: a cluster that stays goes on to use it.

    Args:
        longest: a path of more bytes gets a link as well.

    Raises:
        SetupError: there can be no such link.
    """
    path = path.absolute()
    awkward = [i for i, part in enumerate(path.parts) if not _PLAIN.fullmatch(part)]
    if longest is not None and len(os.fsencode(path)) > longest:
        awkward.append(len(path.parts) - 1)
    if not awkward:
        return path
    top = Path(*path.parts[: awkward[-1] + 1])
    return _linked(top) / path.relative_to(top)


def resolved_plain(directory: Path) -> Path:
    """`directory`, or where links to it are resolved to a name that is not plain, another one for the same purpose.

    Spark finds its configuration as a Java resource: that resolves links, and then reads `%20` as it stands.
    """
    real = os.path.realpath(directory)
    if _PLAIN.fullmatch(real):
        return directory
    with _own_links(real) as links:
        return links / f"{_digest(real)}.d"


def links_dir() -> Path:
    """Where the links of `plain` lie; not created."""
    return TEMPORARY / f"dlobd-{os.getuid()}"


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _linked(top: Path) -> Path:
    """The link to `top`; made if it is not there."""
    with _own_links(str(top)) as links:
        link = links / _digest(str(top))
        if not (link.is_symlink() and os.readlink(link) == str(top)):
            aside = link.with_name(f".{link.name}-{os.getpid()}-{threading.get_ident()}")
            aside.unlink(missing_ok=True)  # of a process that was killed
            aside.symlink_to(top)
            aside.replace(link)
    return link


@contextmanager
def _own_links(path: str) -> Iterator[Path]:
    """`links_dir`, made; no other user may write there, or a link could lead a run anywhere."""
    directory = links_dir()
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(f"{directory} is not a directory that only this user can write to")
        yield directory
    except OSError as error:
        raise SetupError(
            f"{path} contains characters that Spark and Hadoop split or replace, "
            f"and no link to it can be created: {error}.",
            "choose a path with only letters, digits, '/', '-', '_' and '.'",
        ) from error


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
        # resolved: a link of `plain` may be older than the directory
        Path(os.path.realpath(directory)).mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"user id {os.getuid()} may not write there")
    except OSError as error:
        raise SetupError(
            f"The directory {directory} cannot be used: {error}.", "set DLOBD_CACHE to a directory you can write to."
        ) from error


def sha256_of(path: Path) -> str:
    """Hexadecimal sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Writes a file so that a crash of this process leaves the old one or the new one, never a part.

    Args:
        durable: a crash of the machine too, at the cost of waiting for the disk.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
        if durable:
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    finally:
        aside.unlink(missing_ok=True)
