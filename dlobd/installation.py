"""Which dlobd this is: its version, its content, and the Python that has it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlobd import __version__
from dlobd.paths import PACKAGE, python


@dataclass(frozen=True, slots=True)
class Installed:
    """A dlobd that is installed somewhere.

    Args:
        version: with a digest of its files, such as 0.2.0+0123456789ab: two commits have the same number.
        python: the interpreter below which it and all that it needs is found.
    """

    version: str
    python: str

    def __str__(self) -> str:
        return f"dlobd {self.version} at {self.python}"


def this() -> Installed:
    """The one that runs this."""
    return Installed(f"{__version__}+{digest(files())[:12]}", str(python()))


def files() -> tuple[Path, ...]:
    """The package's own files, in a fixed order; what a wheel carries beside them is not the package."""
    found = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return tuple(path for path in found if "_shipped" not in path.relative_to(PACKAGE).parts)


def digest(found: Sequence[Path]) -> str:
    """Hexadecimal sha256 of the package's files, with their names."""
    total = hashlib.sha256()
    for file in found:
        total.update(f"{file.relative_to(PACKAGE)}\n".encode() + file.read_bytes())
    return total.hexdigest()
