"""Loads a model or data set from a user's file, such as `path/to/net.py:build`.

The file is one module, which is loaded from its text: every process runs the text that was read and hashed once, so a
process on another machine needs no file. The module can import installed modules only, not files of its folder.
"""

import hashlib
import linecache
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dlobd.errors import UsageError

_PREFIX = "dlobd_user_"
"""Prefix of the names of modules from users' files."""


class MemberRef(str):
    """Setting that names a member of a registry, or a function or class in the user's own file: FILE.py:NAME."""

    __slots__ = ()

    @property
    def path(self) -> str:
        """Path of the file as the user wrote it; empty for a member of a registry."""
        found = re.fullmatch(r"(.*\.py)(:.*)?", self, re.DOTALL)
        return found[1] if found else ""

    @property
    def attribute(self) -> str:
        """Name of the function or class in the file."""
        return self[len(self.path) + 1 :]

    def check(self) -> None:
        """Raise UsageError if the setting names a file without a function or class."""
        if self.path and not self.attribute.isidentifier():
            raise UsageError(f"{self} names no function or class in {self.path}.", f"{self.path}:NAME")

    def read(self, sha256: str = "") -> str:
        """Read the text of the file. Raises UsageError if it cannot be read, or differs from a given `sha256`."""
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
        """Load the file once per process, and return its function or class; `text` returns the file's text. Raises
        UsageError if the sha256 differs, the file raises an error, or it has no such function or class."""
        name = f"{_PREFIX}{sha256[:16]}"
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
    """Format an error with its innermost line in the file: `net.py, line 3: ValueError: ...`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    where = f"{path}, line {lines[-1]}" if lines else path
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{where}: {type(error).__name__}: {text}".rstrip(": ").split())[:500]


def path_of(kind: type) -> str | None:
    """Return the path of a class that `MemberRef.load` has loaded, as the user wrote it; None for other classes."""
    return sys.modules[kind.__module__].__file__ if kind.__module__.startswith(_PREFIX) else None


def _execute(name: str, path: str, text: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    # tracebacks then show source lines, also on machines without the file
    linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
    try:
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise UsageError(f"{error_line(error, path)}.", "correct the file; it must load without other files") from error
    return module
