"""A model or data set from a user's file, as in `path/to/net.py:build`.

The file is one module. It is loaded from its text: every process runs the text that was read and hashed once, and a
process on another machine needs no file. It can import installed modules only, not modules beside it.
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
from types import ModuleType
from typing import Any

from dlobd.errors import UsageError

_REFERENCE = re.compile(r"(?P<path>.*\.py)(?::(?P<attribute>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UserFile:
    """Reference of a setting to a function or class in a file; the path is as the user wrote it."""

    path: str
    attribute: str


def named(value: str) -> UserFile | None:
    """Parse the reference in a setting; None if it is another kind of name.

    Raises:
        UsageError: it names a file, but no function or class in it.
    """
    reference = _REFERENCE.fullmatch(value)
    if reference is None:
        return None
    attribute = reference["attribute"] or ""
    if not attribute.isidentifier():
        raise UsageError(f"{value} names no function or class in {reference['path']}.", f"{reference['path']}:NAME")
    return UserFile(reference["path"], attribute)


def read(path: str, sha256: str = "") -> str:
    """Read the text of the file.

    Args:
        sha256: of the expected text; empty for any text.

    Raises:
        UsageError: the file cannot be read, or has changed.
    """
    try:
        text = Path(path).expanduser().read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "name a .py file on this machine") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text.", "name a .py file") from None
    except (RuntimeError, ValueError) as error:  # RuntimeError: ~ before an unknown user; ValueError: a NUL
        raise UsageError(f"{path!r} is not the path of a file: {error}.", "name a .py file on this machine") from None
    return _checked(path, text, sha256)


def _checked(path: str, text: str, sha256: str) -> str:
    if sha256 and (actual := sha256_of(text)) != sha256:
        raise UsageError(
            f"{path} has changed: its sha256 begins with {actual[:12]}, not {sha256[:12]}.",
            "restore the file, or start a new run with the changed file",
        )
    return text


def sha256_of(text: str) -> str:
    """Return the hexadecimal sha256 of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(file: UserFile, sha256: str, text: Callable[[], str]) -> Any:
    """Return the function or class, from a module that is loaded once in a process.

    Args:
        sha256: of the file.
        text: returns the file's text; called once in a process.

    Raises:
        UsageError: the text has another sha256, it raised, or has no such function or class; one line.
    """
    name = f"dlobd_user_{sha256[:16]}"
    module = sys.modules.get(name) or _execute(name, file.path, _checked(file.path, text(), sha256))
    if not callable(function := getattr(module, file.attribute, None)):
        names = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
        others = ", ".join(names) or "none"
        raise UsageError(f"{file.path} has no function or class {file.attribute!r}; it has {others}.")
    return function


def error_line(error: BaseException, path: str) -> str:
    """Format an error with the last line of the file in its stack: `net.py, line 3: ValueError: ...`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    where = f"{path}, line {lines[-1]}" if lines else path
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{where}: {type(error).__name__}: {text}".rstrip(": ").split())[:500]


def path_of(kind: type) -> str | None:
    """Return the path of a class that `load` has loaded, as the user wrote it; None for other classes."""
    loader = getattr(sys.modules.get(kind.__module__), "__loader__", None)
    return loader.path if isinstance(loader, _FromText) else None


class _FromText(importlib.abc.ExecutionLoader):
    """A loader of a module from text. Tracebacks show its lines, also on machines without the file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text

    def get_filename(self, fullname: str) -> str:
        """See `importlib.abc.ExecutionLoader`."""
        return self.path

    def get_source(self, fullname: str) -> str:
        """See `importlib.abc.InspectLoader`."""
        return self._text


def _execute(name: str, path: str, text: str) -> ModuleType:
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
        raise UsageError(f"{error_line(error, path)}.", "correct the file; it has to load by itself") from error
    return module
