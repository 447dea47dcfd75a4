"""Marks in a user's code, for its training steps and for other parts of it.

    with dlobd.step(): ...
    with dlobd.span("load"): ...

Both are context managers and decorators, for any thread. Without a recorder they do nothing, and import nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_open: Callable[[str | None], AbstractContextManager[object]] = nullcontext


def record_with(opener: Callable[[str | None], AbstractContextManager[object]]) -> None:
    """Record the later marks of this process and its forks. `opener` opens the span of a name; None is a step."""
    global _open
    _open = opener


@contextmanager
def step() -> Iterator[None]:
    """Mark a training step. If a rank has marked steps, only these count as its steps."""
    with _open(None):
        yield


@contextmanager
def span(name: str) -> Iterator[None]:
    """Mark a part of the code, which the trace then shows under this name."""
    with _open(name):
        yield
