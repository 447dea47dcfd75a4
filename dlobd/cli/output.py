"""Writes output files atomically, at paths that the user chose."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dlobd.errors import UsageError

Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def check_free(path: Path, force: bool) -> None:
    """Check, before any computation, that a command may write a file.
    Raises UsageError if the file exists and `force` is False."""
    if path.exists() and not force:
        raise UsageError(f"{path} already exists.", "add --force, or choose another -o FILE")


def write(path: Path, text: str) -> None:
    """Write a file and print its path. Characters that UTF-8 cannot encode are escaped.
    Raises UsageError if the file cannot be written."""
    with (
        writing(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        file.write(text)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends.

    If the block fails, an existing file is unchanged, and the temporary file is removed. A symbolic link stays, and its
    target is replaced. An existing file keeps its permissions. A pipe or device is written directly.

    Raises UsageError if the file cannot be written.
    """
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
    print(f"Wrote {path}")
