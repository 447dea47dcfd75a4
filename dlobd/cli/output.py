"""Files that commands write where the user says."""

from __future__ import annotations

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
    """Writes the file, and says so.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    print(f"Wrote {path}")
