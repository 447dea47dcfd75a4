"""Checks the options that choose the Python of a user's script: --python, --with and --requirements.

`dlobd.run.overlay` installs the packages.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from dlobd.errors import UsageError
from dlobd.paths import own_pythons, sha256_of

_INCLUDED = re.compile(r"\s*(?:-r|-c|--requirements?|--constraints?)[ =]*([^\s:]+)\s*")


def fields_of(
    python: str | None = None, packages: Sequence[str] = (), requirements: Path | None = None
) -> dict[str, str | tuple[str, ...]]:
    """Return the fields of OwnJob for these options. Raises UsageError if a file or program is missing, or if the
    content of a package may change."""
    texts = list(_texts(requirements)) if requirements else []
    return {
        "python": _interpreter(python) if python else "",
        "packages": tuple(map(_requirement, packages)),
        "requirements": str(requirements.absolute()) if requirements else "",
        "requirements_sha256": sha256("\0".join(texts).encode()).hexdigest() if texts else "",
    }


def _interpreter(python: str) -> str:
    """Return the absolute path of an interpreter, without resolving links; empty for the Python of dlobd."""
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise UsageError(f"--python {python}: there is no such program.", "--python /usr/bin/python3")
    path = os.path.abspath(found)
    return "" if path in own_pythons() else path


def _requirement(package: str) -> str:
    """Return a requirement; a wheel on this machine with the hash of its content."""
    path = Path(package)
    if package.startswith("-") or path.is_dir():
        why = "is an option" if package.startswith("-") else "is a directory, whose content may change"
        raise UsageError(f"--with {package} {why}.", "name a package or a wheel, or use --requirements FILE")
    if path.suffix != ".whl":
        return package
    try:
        return f"{path.name.partition('-')[0]} @ {path.resolve().as_uri()}#sha256={sha256_of(path)}"
    except OSError as error:
        raise UsageError(f"--with {package} cannot be read: {error.strerror}.", "name another wheel") from None


def _texts(path: Path, including: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield the text of a requirements file, and of the files that it includes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"--requirements {path} cannot be read: {why}.", "name a requirements file") from None
    yield text
    for line in text.splitlines():
        if line.lstrip().startswith(("-e", "--editable")):
            raise UsageError(f"{path} has the editable install {line.strip()!r}.", "name a package or a wheel there")
        match = _INCLUDED.match(line)
        if match and (inner := path.parent / match[1]) not in including:
            yield from _texts(inner, (*including, inner))
