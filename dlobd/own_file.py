"""A model or data set from the user's own file, named as `path/to/net.py:build`.

The file is one module. It is loaded from its text, so that every process runs what was read and hashed once, and a
process on another machine needs no file. Modules beside it are not found: what it imports has to be installed.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlobd.errors import UsageError

_REFERENCE = re.compile(r"(?P<path>.*\.py)(?::(?P<attribute>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OwnFile:
    """What a setting names: the file, as the user wrote it, and the function or class in it."""

    path: str
    attribute: str


def named(value: str) -> OwnFile | None:
    """The file and function that a setting names; None where it is another kind of name.

    Raises:
        UsageError: it names a file, but no function or class in it.
    """
    found = _REFERENCE.fullmatch(value)
    if found is None:
        return None
    attribute = found["attribute"] or ""
    if not attribute.isidentifier():
        raise UsageError(f"{value} does not say what in {found['path']} is meant.", f"{found['path']}:NAME")
    return OwnFile(found["path"], attribute)


def read(path: str, sha256: str = "") -> str:
    """The text of the file.

    Args:
        sha256: what it has to be; empty if it may be any.

    Raises:
        UsageError: it cannot be read, or is not what it was.
    """
    try:
        text = Path(path).expanduser().read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "name a .py file on this machine") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text.", "name a .py file") from None
    except (RuntimeError, ValueError) as error:  # of ~ before a name that no user has; of a NUL
        raise UsageError(f"{path!r} is not the path of a file: {error}.", "name a .py file on this machine") from None
    return _checked(path, text, sha256)


def _checked(path: str, text: str, sha256: str) -> str:
    if sha256 and (found := sha256_of(text)) != sha256:
        raise UsageError(
            f"{path} has changed: its sha256 is {found[:12]}..., and {sha256[:12]}... was to be run.",
            "restore the file, or begin anew with the changed one",
        )
    return text


def sha256_of(text: str) -> str:
    """Hexadecimal sha256 of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(own: OwnFile, sha256: str, text: Callable[[], str]) -> Any:
    """The function or class, of a module that is loaded once in a process.

    Args:
        sha256: of the file.
        text: gives the file's text, and is asked once in a process.

    Raises:
        UsageError: the text is not the one with this sha256, it raised, or has no such function or class; one line.
    """
    name = f"dlobd_own_{sha256[:16]}"
    module = sys.modules.get(name) or _executed(name, own.path, _checked(own.path, text(), sha256))
    if not callable(found := getattr(module, own.attribute, None)):
        there = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
        raise UsageError(f"{own.path} has no function or class {own.attribute!r}; it has {', '.join(there) or 'none'}.")
    return found


def said(error: BaseException, path: str) -> str:
    """What went wrong, and the last line of the file that led to it: `net.py, line 3: ValueError: ...`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    where = f"{path}, line {lines[-1]}" if lines else path
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{where}: {type(error).__name__}: {text}".rstrip(": ").split())[:500]


def path_of(thing: type) -> str | None:
    """The file that a class was loaded from by `load`, as the user named it; None for any other class."""
    loader = getattr(sys.modules.get(thing.__module__), "__loader__", None)
    return loader.path if isinstance(loader, _FromText) else None


class _FromText(importlib.abc.ExecutionLoader):
    """Loads a module from the text that a file had. Tracebacks show its lines, also where there is no such file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text

    def get_filename(self, fullname: str) -> str:
        """As the user wrote it."""
        return self.path

    def get_source(self, fullname: str) -> str:
        """See `importlib.abc.InspectLoader`."""
        return self._text


def _executed(name: str, path: str, text: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path, loader=_FromText(path, text))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise UsageError(f"{said(error, path)}.", "correct the file; it has to load by itself") from error
    return module
