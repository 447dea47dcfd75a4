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
from pathlib import Path
from types import ModuleType
from typing import Any

from dlobd.errors import UsageError


class MemberRef(str):
    """A setting that names a member of a registry, or a function or class in the user's own file: FILE.py:NAME."""

    __slots__ = ()

    @property
    def path(self) -> str:
        """Path of the file as the user wrote it; empty for a member of a registry."""
        found = re.fullmatch(r"(.*\.py)(:.*)?", self, re.DOTALL)
        return found[1] if found else ""

    @property
    def attribute(self) -> str:
        """Name in the file."""
        return self[len(self.path) + 1 :]

    def check(self) -> None:
        """Raise UsageError if it names a file, but no function or class in it."""
        if self.path and not self.attribute.isidentifier():
            raise UsageError(f"{self} names no function or class in {self.path}.", f"{self.path}:NAME")

    def read(self, sha256: str = "") -> str:
        """Read the text of the file. Raises UsageError if that fails, or if `sha256` is given and differs."""
        remedy = "name a .py file on this machine"
        try:
            text = Path(self.path).expanduser().read_bytes().decode()
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}.", remedy) from None
        except UnicodeDecodeError:
            raise UsageError(f"{self.path} is not UTF-8 text.", "name a .py file") from None
        except (RuntimeError, ValueError) as error:  # RuntimeError: ~ before an unknown user; ValueError: a NUL
            raise UsageError(f"{self.path!r} is not the path of a file: {error}.", remedy) from None
        return _checked(self.path, text, sha256)

    def load(self, sha256: str, text: Callable[[], str]) -> Any:
        """Return the function or class, from a module that is loaded once in a process.

        Args:
            text: returns the file's text; called once in a process.

        Raises UsageError if the text has another sha256, it raised, or has no such function or class; one line.
        """
        name = f"dlobd_user_{sha256[:16]}"
        module = sys.modules.get(name) or _execute(name, self.path, _checked(self.path, text(), sha256))
        if not callable(function := getattr(module, self.attribute, None)):
            names = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
            others = ", ".join(names) or "none"
            raise UsageError(f"{self.path} has no function or class {self.attribute!r}; it has {others}.")
        return function


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
