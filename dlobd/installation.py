"""Identifies an installation of dlobd: its version, the hash of its files, and its Python."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlobd import __version__
from dlobd.paths import PACKAGE, python


@dataclass(frozen=True, slots=True)
class Installed:
    """Installation of dlobd: its interpreter, and its version with a digest of the files, such as 0.2.0+0123456789ab,
    because the version alone covers many commits."""

    version: str
    python: str

    def __str__(self) -> str:
        return f"dlobd {self.version} at {self.python}"


def this() -> Installed:
    """Return the running installation."""
    return Installed(f"{__version__}+{digest(files())[:12]}", str(python()))


def files() -> tuple[Path, ...]:
    """Return the files of the package, sorted by path, without the folders that a wheel adds."""
    paths = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return tuple(path for path in paths if "_shipped" not in path.relative_to(PACKAGE).parts)


def digest(paths: Sequence[Path]) -> str:
    """Return the hexadecimal sha256 of the names and contents of files."""
    total = hashlib.sha256()
    for file in paths:
        total.update(f"{file.relative_to(PACKAGE)}\n".encode() + file.read_bytes())
    return total.hexdigest()
