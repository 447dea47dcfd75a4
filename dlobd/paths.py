"""Paths of dlobd's files, of its caches and of Spark, and functions that write and lock files.

A checkout has jobs, configuration and data sets at its top (`jobs/`, `yarn/`, `data/`); a wheel has the same folders
under `dlobd/_shipped`. The cache directory contains only files that can be fetched or built again.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlobd.errors import Busy, SetupError

CLUSTER = "cluster"
NATIVE = "native"
FETCHED = "data"
"""Names of subdirectories of the cache directory."""

RUNS = Path("runs")
"""Directory for run bundles, if no option, variable or configuration file names another."""

TEMPORARY = Path("/tmp")
"""Last resort for `links_dir`. It is not TMPDIR, which may differ between commands that use one cluster."""

_MAX_LINKS = 57
"""Longest `links_dir` in bytes: a link in it may be the work directory of a cluster, which has at most 70 bytes."""

_PLAIN = re.compile(r"[A-Za-z0-9_/.+@=~-]*")

PACKAGE = Path(__file__).resolve().parent
"""Directory of the installed package, which is sent to nodes as a zip."""


def shipped(name: str) -> Path:
    """Return the path of a folder or file that comes with dlobd, such as `yarn` or `data/mnist`.
    Raises SetupError if it is missing from this installation."""
    for top in (PACKAGE / "_shipped", PACKAGE.parent):
        path = top / name
        if path.exists():
            return path
    raise SetupError(f"{name!r} is missing from the dlobd installation in {PACKAGE}.", "reinstall dlobd")


def data_file(name: str) -> Path | None:
    """Return the path of a data set's file, such as `cifar-10/data_batch_1.bin`; None if the file is missing.

    Searches DLOBD_DATA, the fetched files, and the checkout, in this order."""
    own = os.environ.get("DLOBD_DATA")
    tops = [Path(own).expanduser()] if own else []
    for top in (*tops, fetched_dir(), PACKAGE / "_shipped" / "data", PACKAGE.parent / "data"):
        if (top / name).is_file():
            return top / name
    return None


def fetched_dir() -> Path:
    """Return the directory of `dlobd data fetch`; does not create it."""
    return cache_dir() / FETCHED


def spark_home() -> Path:
    """Return pip's directory of Spark, without importing PySpark. Raises SetupError if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        raise SetupError("The Python package pyspark is not installed.", "pip install 'dlobd[run]'")
    return plain(Path(spec.origin).parent)


def python(other: str = "") -> Path:
    """Return the path of an interpreter in its virtual environment, made safe by `plain`; by default this one."""
    executable = Path(other or sys.executable)
    return plain(executable.parent.parent) / executable.parent.name / executable.name


def own_pythons() -> tuple[str, str]:
    """Return the names of the running interpreter: as it was started, and made safe by `plain`."""
    return sys.executable, str(python())


def python_path() -> str:
    """Return PYTHONPATH for a child process, with this dlobd first."""
    return os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def modules_dir() -> Path:
    """Return a directory that contains only a link to this package, for the PYTHONPATH of another interpreter: beside
    the package are those of its environment. Raises SetupError if the link cannot be created."""
    directory = cache_dir() / "packed" / _digest(str(PACKAGE))
    make_writable(directory)
    link = directory / PACKAGE.name
    try:
        if not link.is_symlink():
            link.symlink_to(PACKAGE)
    except FileExistsError:
        pass  # another command was faster
    return plain(directory)


def plain(path: Path, longest: int | None = None) -> Path:
    """Return a path that scripts, URIs and configuration files of Spark and Hadoop do not change.

    They split or replace spaces, quotes, commas, dollars and letters beyond ASCII. If a part of the path has such a
    character, or the path exceeds `longest` bytes, a link in `links_dir` replaces this part and its parents. The link
    stays, because a running cluster may use it. Raises SetupError if the link cannot be created.
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
    """Return `directory`, or a replacement in `links_dir` if it resolves to a path with special characters: Spark finds
    its configuration as a Java resource, which resolves links and does not decode `%20`."""
    real = os.path.realpath(directory)
    if _PLAIN.fullmatch(real):
        return directory
    with _own_links(real) as links:
        return links / f"{_digest(real)}.d"


def links_dir() -> Path:
    """Return this cache's directory of the links of `plain`; does not create it. It is in the cache, else in
    `$XDG_STATE_HOME` or `~/.local/state`, whose files no cleaner of temporary files removes. If both paths are too long
    or need a link themselves, it is in /tmp."""
    cache = cache_dir()
    name = _digest(str(cache))
    for path in (cache / "links", _xdg("XDG_STATE_HOME", ".local/state") / name):
        # Java resolves links, so that the real path must be plain as well
        if _PLAIN.fullmatch(f"{path}{os.path.realpath(path)}") and len(os.fsencode(path)) <= _MAX_LINKS:
            return path
    return TEMPORARY / f"dlobd-{os.getuid()}-{name}"


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _linked(top: Path) -> Path:
    """Return the link to `top`; create or repair it if needed."""
    with _own_links(str(top)) as links:
        link = links / _digest(str(top))
        if not (link.is_symlink() and os.readlink(link) == str(top)):
            if link.is_dir() and not link.is_symlink():
                shutil.rmtree(link)  # written by a daemon after the loss of its link
            temporary = link.with_name(f".{link.name}-{os.getpid()}-{threading.get_ident()}")
            temporary.unlink(missing_ok=True)  # left by a killed process
            temporary.symlink_to(top)
            temporary.replace(link)
    return link


@contextmanager
def _own_links(path: str) -> Iterator[Path]:
    """Create and yield `links_dir`. No other user may write to it: a foreign link could redirect a run."""
    directory = links_dir()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{directory} is not a directory that only this user can write to")
        yield directory
    except OSError as error:
        raise SetupError(
            f"{path} contains characters that Spark and Hadoop split or replace, "
            f"and no link to it can be created: {error}.",
            f"choose a path with only letters, digits, '/', '-', '_' and '.', or remove {directory}",
        ) from error


def cluster_dir() -> Path:
    """Return the work directory of the embedded cluster, shared by `dlobd run` and `dlobd cluster`."""
    return cache_dir() / CLUSTER


def native_dir() -> Path:
    """Return the directory for data sets and outputs of jobs without HDFS."""
    return cache_dir() / NATIVE


def config_file() -> Path:
    """Return the path of the user's configuration file, which need not exist."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "config.toml"


def _xdg(variable: str, default: str) -> Path:
    """Return dlobd's directory below the one that a variable of the XDG specification names."""
    xdg = os.environ.get(variable, "")
    # the XDG specification ignores relative paths
    root = Path(xdg) if os.path.isabs(xdg) else Path.home() / default
    return root / "dlobd"


def cache_dir() -> Path:
    """Return `$DLOBD_CACHE`, else `$XDG_CACHE_HOME/dlobd`, else `~/.cache/dlobd`; does not create it."""
    own = os.environ.get("DLOBD_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    return _xdg("XDG_CACHE_HOME", ".cache")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock of file `path` in the cache and hold it. The kernel releases the lock when the process ends in
    any way. Raises SetupError if the directory cannot be written."""
    with using_cache():
        make_writable(path.parent)
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def using_cache(alone: bool = False) -> Iterator[None]:
    """Hold the lock of the cache, which commands share; `alone` is for a command that removes the cache. Raises Busy if
    `alone` and another command uses the cache, SetupError if the cache cannot be written."""
    make_writable(cache_dir())
    with (cache_dir() / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except BlockingIOError:
            raise Busy(f"Another dlobd command is using {cache_dir()}.", "wait for it to finish, or stop it") from None
        yield


def make_writable(directory: Path) -> None:
    """Create a directory. Raises SetupError if this user cannot write there."""
    try:
        # resolved, because a link of `plain` may be older than the directory
        Path(os.path.realpath(directory)).mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"user id {os.getuid()} may not write there")
    except OSError as error:
        raise SetupError(f"{directory} cannot be used: {error}.", "set DLOBD_CACHE to another directory.") from error


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if there is no such file."""
    return path.stat().st_size if path.exists() else 0


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Replace a file atomically: a crash of this process leaves the old or the new content. With `durable`, a crash
    of the machine does so as well, and the call waits for the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    finally:
        temporary.unlink(missing_ok=True)
