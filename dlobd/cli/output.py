"""Files that commands write where the user says: whole, or not at all."""

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
    """Asked before anything is computed.

    Raises:
        UsageError: the file is there, and may not be overwritten.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} already exists.", "add --force, or choose another -o FILE")


def write(path: Path, text: str) -> None:
    """Writes the file, and says so. Text that UTF-8 does not have is escaped.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(path) as beside, open(beside, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.write(text)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """The name under which to write what becomes `path` when the block ends, and says so then.

    Until then it is another file beside it: one that is there already stays whole whatever happens, and nothing is left
    if the block fails. What a symbolic link names is replaced, not the link; a file keeps its permissions; what is no
    file, such as a pipe, is written to as it is.

    Raises:
        UsageError: it cannot be written.
    """
    whole = Path(os.path.realpath(path))
    beside = whole.with_name(f".dlobd-{os.getpid()}.part")
    try:
        if path.exists() and not path.is_file():
            yield path
        else:
            try:
                yield beside
                if whole.exists():
                    shutil.copymode(whole, beside)
                _keep(beside)
                os.replace(beside, whole)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", "choose another -o FILE") from error
    print(f"Wrote {path}")


def _keep(path: Path) -> None:
    """Onto the disk: else a machine that loses its power may have the new name without the content."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
