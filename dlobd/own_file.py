"""A model or data set from the user's own file, named as `path/to/net.py:build`.

The file is a single module, loaded from its text: all processes run the text that was hashed, and other machines need
no file. It can import only installed modules, none from its own directory.
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
    """A user's file, with its path as the user wrote it, and the function or class in it."""

    path: str
    attribute: str


def named(value: str) -> OwnFile | None:
    """Returns the file and function of a setting; None for the name of a registry.

    Raises:
        UsageError: the setting names a file without a function or class.
    """
    match = _REFERENCE.fullmatch(value)
    if match is None:
        return None
    attribute = match["attribute"] or ""
    if not attribute.isidentifier():
        raise UsageError(f"{value} names no function or class in {match['path']}.", f"{match['path']}:NAME")
    return OwnFile(match["path"], attribute)


def read(path: str, sha256: str = "") -> str:
    """Reads the text of a file.

    Args:
        sha256: required hash; empty to accept any.

    Raises:
        UsageError: the file cannot be read, or has another hash.
    """
    try:
        text = Path(path).expanduser().read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "name a .py file on this machine") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text.", "name a .py file") from None
    except (RuntimeError, ValueError) as error:  # an unknown user after ~; a NUL character
        raise UsageError(f"{path!r} is not the path of a file: {error}.", "name a .py file on this machine") from None
    return _checked(path, text, sha256)


def _checked(path: str, text: str, sha256: str) -> str:
    if sha256 and (found := sha256_of(text)) != sha256:
        raise UsageError(
            f"{path} has changed: its sha256 is {found[:12]}... instead of {sha256[:12]}....",
            "restore the file, or start a new run with the changed file",
        )
    return text


def sha256_of(text: str) -> str:
    """Returns the hexadecimal sha256 of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(own: OwnFile, sha256: str, text: Callable[[], str]) -> Any:
    """Returns the function or class. A process loads the module once.

    Args:
        sha256: hash of the file.
        text: returns the text of the file; called once per process.

    Raises:
        UsageError: the text has another hash, raised an exception, or lacks the function or class.
    """
    name = f"dlobd_own_{sha256[:16]}"
    module = sys.modules.get(name) or _executed(name, own.path, _checked(own.path, text(), sha256))
    if not callable(member := getattr(module, own.attribute, None)):
        names = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
        raise UsageError(f"{own.path} has no function or class {own.attribute!r}; it has {', '.join(names) or 'none'}.")
    return member


def error_line(error: BaseException, path: str) -> str:
    """Returns an error with the last line of the file in its traceback: `net.py, line 3: ValueError: ...`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    where = f"{path}, line {lines[-1]}" if lines else path
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{where}: {type(error).__name__}: {text}".rstrip(": ").split())[:500]


def path_of(thing: type) -> str | None:
    """Returns the user's path of the file from which `load` loaded a class; None for any other class."""
    loader = getattr(sys.modules.get(thing.__module__), "__loader__", None)
    return loader.path if isinstance(loader, _FromText) else None


class _FromText(importlib.abc.ExecutionLoader):
    """A loader of modules from text. Tracebacks show its lines even without the file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text

    def get_filename(self, fullname: str) -> str:
        """Returns the user's path."""
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
        raise UsageError(f"{error_line(error, path)}.", "correct the file; it must load without other files") from error
    return module
