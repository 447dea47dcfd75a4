"""Summed steps: the spans inside of them are not written; their number, time and bytes are summed by kind.

With `record_every_steps` of N, a step is summed unless N divides its number. All layers keep their time to the
nanosecond. A span inside a summed step is left out if

    the written span around it has the same layer
    it does not wait, because the attribution follows waits
    the written span around it does not wait, or is a collective in which an inner collective has ended: all ranks have
    entered both, so that the rest of the outer collective is its own time

A step carries the sums up to its end, so that both are written together, and the sums of a killed process belong to the
steps in its file.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dlobd.spans import MARKED_STEP, STEP, Fields, JsonMap, SpanKind

if TYPE_CHECKING:
    from dlobd.tracing.recorder import OpenSpan

EVERY = "DLOBD_RECORD_EVERY_STEPS"
"""Environment variable with the value of `record_every_steps`."""

Sum = tuple[SpanKind, int, int, int]
"""Kind, number, time in nanoseconds and bytes of the spans that were left out since the file was opened."""


class LeftOut:
    """Sums of the left-out spans of a kind, and the context of each of them. It is its own context, because an object
    per span would cost more than the rest."""

    __slots__ = ("_now", "bytes", "kind", "ns", "spans")

    def __init__(self, kind: SpanKind, now: Callable[[], int]) -> None:
        self._now = now
        self.kind, self.spans, self.ns, self.bytes = kind, 0, 0, 0

    def note(self, **attrs: Any) -> None:
        """Add the number of bytes; other attributes are lost."""
        self.bytes += attrs.get("bytes", 0)

    def __enter__(self) -> LeftOut:
        self.ns -= self._now()  # spans of a kind may nest
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.ns += self._now()
        self.spans += 1


class SummedSteps:
    """Left-out spans of the main thread of a process. `stack`: its open written spans."""

    def __init__(self, every: int, stack: list[OpenSpan], thread: int | None, now: Callable[[], int]) -> None:
        self._every, self._stack, self._thread, self._now = every, stack, thread, now
        self._marked = itertools.count()  # numbers of the steps that the user's code marks
        self._step: OpenSpan | None = None  # the open summed step
        self._sums: dict[int, LeftOut] = {}
        self._before = 0  # spans that earlier steps left out
        # by the layer of the span around, and the ID of a kind, because kinds of two layers may be equal
        self._known: dict[str, dict[int, LeftOut | None]] = defaultdict(dict)
        self._inside: dict[int, LeftOut | None] | None = None  # for the innermost written span; None: all are written

    def left_out(self, kind: SpanKind, wait: Fields | None, attrs: JsonMap) -> LeftOut | None:
        """Return the context of a span that is left out; None for a span that is written."""
        inside = self._inside
        if inside is None or get_ident() != self._thread or _waits(wait):
            return None
        try:
            found = inside[id(kind)]
        except KeyError:
            found = inside[id(kind)] = self._sum_of(kind)
        if found is not None and "bytes" in attrs:
            found.bytes += attrs["bytes"]
        return found

    def _sum_of(self, kind: SpanKind) -> LeftOut | None:
        if kind.layer != self._stack[-1].kind.layer or kind.wait or _is_step(kind):
            return None
        return self._sums.setdefault(id(kind), LeftOut(kind, self._now))

    def enter(self, span: OpenSpan) -> None:
        """Note the begin of a written span, which is on its stack."""
        if self._step is None:
            if not _is_step(span.kind) or span.stack is not self._stack:
                return
            call = span.wait.get("call")
            if (call if isinstance(call, int) else next(self._marked)) % self._every == 0:
                return
            self._step = span
        elif span.stack is not self._stack:
            return
        self._inside = None if _waits(span.wait) else self._known[span.kind.layer]

    def leave(self, span: OpenSpan) -> None:
        """Note the end of a written span, which has left its stack."""
        if self._step is None or span.stack is not self._stack:
            return
        if span is self._step:
            left_out, before = 0, self._before
            span.sums = sums = []
            for one in self._sums.values():
                left_out += one.spans
                sums.append((one.kind, one.spans, one.ns, one.bytes))
            span.note(left_out=left_out - before)
            self._before = left_out
        elif self._step in self._stack:
            around = self._stack[-1]
            all_entered = "rendezvous" in span.wait and "rendezvous" in around.wait
            self._inside = None if _waits(around.wait) and not all_entered else self._known[around.kind.layer]
            return
        self._step = self._inside = None


def _waits(wait: Fields | None) -> bool:
    return bool(wait and (len(wait) > 1 or "call" not in wait))


def _is_step(kind: SpanKind) -> bool:
    return kind is STEP or kind is MARKED_STEP
