"""Records the first import of a module, from any caller, and prepares the module before its first use."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import ModuleType

from dlobd import tracing


def on_import(name: str, layer: str | None, prepare: Callable[[ModuleType], None] = lambda module: None) -> None:
    """Puts a span of `layer`, if any, around the import of `name`, and calls `prepare(module)` at its end; imports
    nothing.

    A module that is there already is prepared at once.
    """
    if name in sys.modules:
        prepare(sys.modules[name])
    else:
        sys.meta_path.insert(0, _FirstImport(name, layer, prepare))


class _FirstImport(importlib.abc.MetaPathFinder):
    """Finds nothing itself."""

    def __init__(self, name: str, layer: str | None, prepare: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._layer = layer
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
            spec.loader = _Loader(spec.loader, self._layer, self._prepare)
        return spec


class _Loader(importlib.abc.Loader):
    """Stands before a module's own loader, which may load others too, and steps back once it is used."""

    def __init__(self, own: importlib.abc.Loader, layer: str | None, prepare: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._layer = layer
        self._prepare = prepare

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        recorded = tracing.span(self._layer, f"import {module.__name__}") if self._layer else nullcontext()
        with recorded:
            self._own.exec_module(module)
            self._prepare(module)
