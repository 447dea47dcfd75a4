"""Where dlobd keeps what can be fetched or built again, and the lock that guards a part of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlobd.errors import SetupError


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
