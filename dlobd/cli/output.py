"""Writes output files atomically, in a bundle or at paths that the user chose."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from dlobd.errors import UsageError

STDOUT = Path("-")

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Output file, or - for stdout. Default: in the bundle."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def checked(path: Path | None, default: Path, types: Sequence[str], force: bool, size_bytes: float = 0) -> Path:
    """Check, before any computation, that a command may write a file; return its path.

    Args:
        path: the user's file, `STDOUT`, or None for `default`, which a command of dlobd wrote and may overwrite.
        types: suffixes of the file types that the command writes.
        size_bytes: estimated size of the file.

    Raises UsageError if the type is unknown, the directory cannot be written or lacks the space, or the file exists and
    `force` is False.
    """
    if path == STDOUT:
        _check_space(Path(tempfile.gettempdir()), size_bytes, "set TMPDIR to a larger directory, or choose -o FILE")
        return path
    if path is not None and path.exists() and not path.is_file() and not path.is_dir():
        return path
    chosen = path or default
    if chosen.is_dir():
        raise UsageError(f"{chosen} is a directory.", "name a file with -o FILE")
    if chosen.suffix not in types:
        raise UsageError(f"-o {chosen}: the file type is unknown.", f"end the name in {' or '.join(types)}")
    if not os.access(chosen.absolute().parent, os.W_OK | os.X_OK):
        why = "no such directory" if not chosen.absolute().parent.exists() else "its directory is read-only"
        raise UsageError(f"{chosen} cannot be written: {why}.", "choose another -o FILE")
    if path is not None and path.exists() and not force:
        raise UsageError(f"{path} already exists.", "add --force, or choose another -o FILE")
    _check_space(chosen.absolute().parent, size_bytes, "choose another -o FILE")
    return chosen


def _check_space(directory: Path, size_bytes: float, remedy: str) -> None:
    if (free := shutil.disk_usage(directory).free) < size_bytes:
        size = f"The output has about {size_bytes / 1e6:.0f} MB"
        raise UsageError(f"{size}, but {directory} has {free / 1e6:.0f} MB of free space.", remedy)


def shown(path: Path) -> Path:
    """Return a path for messages: relative to the current directory if it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def write(path: Path, text: str) -> None:
    """Write a file and print its path. Raises UsageError if the file cannot be written."""
    with writing(path) as temporary, opened(temporary) as file:
        file.write(text)


def opened(path: Path) -> TextIO:
    """Open a file to write text. Characters that UTF-8 cannot encode are escaped."""
    return open(path, "w", encoding="utf-8", errors="backslashreplace", newline="")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends.

    If the block fails, an existing file is unchanged, and the temporary file is removed. A symbolic link stays, and its
    target is replaced. An existing file keeps its permissions. A pipe or device is written directly.

    Raises UsageError if the file cannot be written.
    """
    if path == STDOUT:
        with tempfile.NamedTemporaryFile() as copied:
            yield Path(copied.name)
            with open(copied.name, "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".dlobd-{os.getpid()}.part")
    try:
        if path.exists() and not path.is_file():
            yield path
        else:
            try:
                yield temporary
                if target.exists():
                    shutil.copymode(target, temporary)
                with open(temporary, "rb") as file:  # a power failure could leave the new name without the content
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", "choose another -o FILE") from error
    print(f"Wrote {shown(path)}")
