"""Checks the options that choose the Python of a user's script: --python, --with and --requirements.

`dlobd.run.overlay` installs the packages.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from dlobd.errors import UsageError
from dlobd.paths import python as own_python
from dlobd.paths import sha256_of

WHEEL = ".whl"

_INCLUDED = re.compile(r"^\s*(?:-r|-c|--requirements?|--constraints?)[ =]*(\S+)")
_EDITABLE = re.compile(r"^\s*(?:-e|--editable)\b")


def fields_of(
    python: str | None = None, packages: Sequence[str] = (), requirements: Path | None = None
) -> dict[str, str | tuple[str, ...]]:
    """Return the fields of OwnJob for these options. Raises UsageError if a file or program is missing, or if the
    content of a package may change."""
    return {
        "python": _interpreter(python) if python else "",
        "packages": tuple(_requirement(package) for package in packages),
        "requirements": str(requirements.absolute()) if requirements else "",
        "requirements_sha256": _content(requirements) if requirements else "",
    }


def _interpreter(python: str) -> str:
    """Return the absolute path of an interpreter, without resolving links; empty for the Python of dlobd."""
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise UsageError(f"--python {python}: there is no such program.", "--python /usr/bin/python3")
    path = os.path.abspath(found)
    return "" if path in (sys.executable, str(own_python())) else path


def _requirement(package: str) -> str:
    """Return a requirement; a wheel on this machine with the hash of its content."""
    path = Path(package)
    if package.startswith("-") or path.is_dir():
        why = "is an option" if package.startswith("-") else "is a directory, whose content may change"
        raise UsageError(f"--with {package} {why}.", "name a package or a wheel, or use --requirements FILE")
    if path.suffix != WHEEL:
        return package
    try:
        return f"{path.name.partition('-')[0]} @ {path.resolve().as_uri()}#sha256={sha256_of(path)}"
    except OSError as error:
        raise UsageError(f"--with {package} cannot be read: {error.strerror}.", "name another wheel") from None


def _content(requirements: Path) -> str:
    """Return the hash of a requirements file with all files that it includes."""
    total = sha256()
    for text in _texts(requirements, set()):
        total.update(text.encode())
    return total.hexdigest()


def _texts(path: Path, seen: set[Path]) -> Iterator[str]:
    if path.resolve() in seen:
        return
    seen.add(path.resolve())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--requirements {path} cannot be read: {why}.", "name a requirements file") from None
    yield text
    for line in text.splitlines():
        if _EDITABLE.match(line):
            raise UsageError(f"{path} has the editable install {line.strip()!r}.", "name a package or a wheel there")
        if (match := _INCLUDED.match(line)) and "://" not in match[1]:
            yield from _texts(path.parent / match[1], seen)
