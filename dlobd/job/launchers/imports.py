"""Records the duration and the importer of each package's import, runs hooks at the first import of a module, and
imports TensorFlow without Keras."""

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec
from threading import get_ident, local
from types import ModuleType
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.spans import SpanKind
from dlobd.tracing.clock import monotonic_ns

LONG_NS = 1_000_000  # shorter imports are too frequent to record; their time counts as time of their importer

_IMPORTLIB = "<frozen importlib._bootstrap>"


def _as_importlib(function: Any) -> Any:
    """Return a function whose frames have importlib's file name: Python removes them from tracebacks of imports, and
    `warnings` does not count them in a `stacklevel`."""
    function.__code__ = function.__code__.replace(co_filename=_IMPORTLIB)
    return function


def on_import(
    name: str,
    kind: SpanKind | None,
    prepare: Callable[[ModuleType], object] = lambda module: None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Record a span of `kind`, or enter `around`, during the first import of `name`; call `prepare(module)` at its end.

    If the module is already loaded, call `prepare` at once. The function itself imports no module.
    """
    if name in sys.modules:
        prepare(sys.modules[name])
    else:
        if kind:
            around = partial(tracing.span, kind)
        sys.meta_path.insert(0, _FirstImport(name, around, prepare))


class _FirstImport(importlib.abc.MetaPathFinder):
    """Finder that delegates to the other finders, and wraps the loader of one module."""

    def __init__(
        self, name: str, around: Callable[[], AbstractContextManager[object]], prepare: Callable[[ModuleType], object]
    ) -> None:
        self._name = name
        self._around = around
        self._prepare = prepare
        self._finding = 0  # ID of the thread that asks the other finders

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        # a package may only be looked up before its import, as TensorFlow does with Keras
        if name != self._name or self._finding == get_ident():
            return None
        before, self._finding = self._finding, get_ident()
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding = before
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapper(spec.loader, self._load)
        return spec

    @_as_importlib
    def _load(self, execute: Callable[[], None], module: ModuleType) -> None:
        with suppress(ValueError):  # an earlier import has failed
            sys.meta_path.remove(self)
        with self._around():
            execute()
            self._prepare(module)


class _Wrapper(importlib.abc.Loader):
    """Wrapper of a module's own loader. It removes itself at its first use: other modules may use the loader too."""

    def __init__(self, own: importlib.abc.Loader, load: Callable[[Callable[[], None], ModuleType], None]) -> None:
        self._own = own
        self._load = load

    def __getattr__(self, name: str) -> Any:
        # runpy, pkgutil and other users of a spec call methods of its loader
        return getattr(self.__dict__["_own"], name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    @_as_importlib
    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._load(partial(self._own.exec_module, module), module)


def record_packages() -> None:
    """Record an instant for each later import of a package in this process and its forks."""
    if not any(isinstance(finder, _Packages) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Packages())


class _Packages(importlib.abc.MetaPathFinder):
    """Finder that wraps the loaders of all packages. Nested imports of the same package are part of its import."""

    def __init__(self) -> None:
        self._local = local()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package = name.partition(".")[0]
        # the unfinished imports of this thread, the innermost last
        stack: list[_Import] = self._local.__dict__.setdefault("stack", [])
        if getattr(self._local, "finding", "") == name or (stack and stack[-1].package == package):
            return None
        before, self._local.finding = getattr(self._local, "finding", ""), name
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        try:
            spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        finally:
            self._local.finding = before
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Wrapper(spec.loader, partial(_time, package, stack))
        return spec


@dataclass(slots=True)
class _Import:
    """An unfinished import, and the time of the imports nested in it."""

    package: str
    nested_ns: int = 0


@_as_importlib
def _time(package: str, stack: list[_Import], execute: Callable[[], None], module: ModuleType) -> None:
    current, importer = _Import(package), stack[-1] if stack else None
    # with a span in every process, because the user's Python workers may import it
    kind = kinds.IMPORT_TENSORFLOWONSPARK if package == "tensorflowonspark" else None
    start_ns = monotonic_ns()
    stack.append(current)
    try:
        with tracing.span(kind) if kind else nullcontext():
            execute()
    finally:
        stack.pop()
        ns = monotonic_ns() - start_ns
        if importer is not None:
            importer.nested_ns += ns
        if ns >= LONG_NS:
            by, own_ns = importer.package if importer else "", ns - current.nested_ns
            tracing.instant(kinds.PACKAGE_IMPORTED, package=package, by=by, ns=ns, own_ns=own_ns)


def import_tensorflow() -> None:
    """Import TensorFlow without Keras, which dlobd's models do not use and which takes 20 % of the import time.

    Later code can still use `tf.keras` or import keras: TensorFlow loads it on demand.
    """
    with tracing.span(kinds.IMPORT_TENSORFLOW):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        loaded = "keras" in sys.modules or "tensorflow" in sys.modules
        if not loaded:
            # None makes `import keras` fail, and TensorFlow continues without keras
            sys.modules["keras"] = None  # type: ignore[assignment]
        try:
            import tensorflow  # noqa: F401
        finally:
            if not loaded:
                del sys.modules["keras"]
