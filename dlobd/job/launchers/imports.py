"""Records imports: how long each package takes, for whom; and the first import of a module, from any caller, which is
prepared before its first use."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from threading import local
from types import ModuleType

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.spans import SpanKind
from dlobd.tracing.clock import monotonic_ns

LONG_NS = 1_000_000
"""Shorter imports are too many for a line each: their time stays with who imports them."""

LAUNCHERS = {"tensorflowonspark": kinds.IMPORT_TENSORFLOWONSPARK}
"""Packages whose import is a span in every process, because the user's own Python worker may import them."""


def on_import(name: str, kind: SpanKind | None, prepare: Callable[[ModuleType], None] = lambda module: None) -> None:
    """Records a span of `kind`, if any, around the import of `name`, and calls `prepare(module)` at its end.

    Imports nothing.

    A module that is there already is prepared at once.
    """
    if name in sys.modules:
        prepare(sys.modules[name])
    else:
        sys.meta_path.insert(0, _FirstImport(name, kind, prepare))


class _FirstImport(importlib.abc.MetaPathFinder):
    """Finds nothing itself."""

    def __init__(self, name: str, kind: SpanKind | None, prepare: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._kind = kind
        self._prepare = prepare

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        try:
            sys.meta_path.remove(self)
        except ValueError:
            return None  # another thread was faster
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._kind, self._prepare)
        return spec


class _Before(importlib.abc.Loader):
    """Stands before a module's own loader, which may load others too, and steps back once it is used."""

    def __init__(self, own: importlib.abc.Loader) -> None:
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def _step_back(self, module: ModuleType) -> None:
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own


class _Loader(_Before):
    """Records an import, and prepares the module."""

    def __init__(self, own: importlib.abc.Loader, kind: SpanKind | None, prepare: Callable[[ModuleType], None]) -> None:
        super().__init__(own)
        self._kind = kind
        self._prepare = prepare

    def exec_module(self, module: ModuleType) -> None:
        self._step_back(module)
        recorded = tracing.span(self._kind) if self._kind else nullcontext()
        with recorded:
            self._own.exec_module(module)
            self._prepare(module)


def record_packages() -> None:
    """From now on, an instant says of each package how long its import took in this process and its forks, and which
    package, if any, imported it. Harmless when called twice; imports nothing."""
    if not any(isinstance(finder, _Packages) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Packages())


class _Packages(importlib.abc.MetaPathFinder):
    """Finds nothing itself. Modules of a package that import each other are one import of it."""

    def __init__(self) -> None:
        self._local = local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = name.partition(".")[0]
        stack = self._stack()
        if getattr(self._local, "finding", "") == name or (stack and stack[-1].package == package):
            return None
        before, self._local.finding = getattr(self._local, "finding", ""), name
        try:
            spec = self._found(name, path, target)
        finally:
            self._local.finding = before
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Timed(spec.loader, package, stack)
        return spec

    def _stack(self) -> list[_Import]:
        """What this thread imports now, the innermost last."""
        stack: list[_Import] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _found(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in [each for each in sys.meta_path if each is not self]:
            find = getattr(finder, "find_spec", None)
            if find is not None and (spec := find(name, path, target)) is not None:
                return spec  # type: ignore[no-any-return]
        return None


class _Import:
    """One that is under way, and how long it has taken for others."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.others_ns = 0


class _Timed(_Before):
    """Notes how long an import took, and for whom."""

    def __init__(self, own: importlib.abc.Loader, package: str, stack: list[_Import]) -> None:
        super().__init__(own)
        self._package = package
        self._stack = stack

    def exec_module(self, module: ModuleType) -> None:
        self._step_back(module)
        own, by = _Import(self._package), self._stack[-1] if self._stack else None
        kind = LAUNCHERS.get(self._package)
        begun_ns = monotonic_ns()
        self._stack.append(own)
        try:
            with tracing.span(kind) if kind else nullcontext():
                self._own.exec_module(module)
        finally:
            self._stack.pop()
            ns = monotonic_ns() - begun_ns
            if by is not None:
                by.others_ns += ns
            if ns >= LONG_NS:
                whose, own_ns = by.package if by else "", ns - own.others_ns
                tracing.instant(kinds.PACKAGE_IMPORTED, package=self._package, by=whose, ns=ns, own_ns=own_ns)
