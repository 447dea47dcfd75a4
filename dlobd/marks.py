"""Marks in a user's code, for its training steps and for other parts of it.

    with dlobd.step(): ...
    with dlobd.span("load"): ...

A mark is a context manager and a decorator, for any number of uses in any threads. Without a recorder, marks do nothing
and import nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from threading import get_ident
from types import TracebackType

Open = Callable[[str | None], AbstractContextManager[object]]
"""Opens the span of a mark; None is the name of a step."""

_open: Open | None = None


def record_with(opener: Open) -> None:
    """Record the later marks of this process and its forks."""
    global _open
    _open = opener


class Mark(ContextDecorator):
    """Part of the user's code between `__enter__` and `__exit__`."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._entered: dict[int, list[AbstractContextManager[object] | None]] = {}  # by thread, the innermost last

    def __enter__(self) -> None:
        span = _open(self._name) if _open else None
        if span is not None:
            span.__enter__()
        self._entered.setdefault(get_ident(), []).append(span)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        span = self._entered[get_ident()].pop()
        if span is not None:
            span.__exit__(kind, error, tb)


def step() -> Mark:
    """Mark a training step. If a rank has marked steps, only these count as its steps."""
    return Mark(None)


def span(name: str) -> Mark:
    """Mark a part of the code, which the trace then shows under this name."""
    return Mark(name)
