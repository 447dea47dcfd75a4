"""Times of other clocks, moved to the clock of the window."""

from dataclasses import replace
from typing import Self

import numpy as np

from dlobd.attribution.trace import Span
from dlobd.columns import MOST, Ints
from dlobd.schema import Event
from dlobd.tracing.clock_offset import Offset


class Timestamp(int):
    """A time that was moved to the clock of the window. Arithmetic gives a plain int without an error."""

    error_ns: int

    def __new__(cls, ns: int, error_ns: int = 0) -> Self:
        timestamp = super().__new__(cls, ns)
        timestamp.error_ns = error_ns
        return timestamp


def error_of(at_ns: int | None) -> int:
    """Return the error of a time; 0 for the window's own clock, or if the error is unknown."""
    return at_ns.error_ns if isinstance(at_ns, Timestamp) else 0


def widened_span(span: Span) -> Span:
    """Add the largest error of a span's times to its resolution."""
    error_ns = max(map(error_of, (span.start_ns, span.end_ns, span.released_ns)))
    return replace(span, resolution_ns=span.resolution_ns + error_ns) if error_ns else span


def widened_event(event: Event) -> Event:
    """Add the error of an event's time to its resolution."""
    error_ns = error_of(event.at_ns)
    return replace(event, resolution_ns=event.resolution_ns + error_ns) if error_ns else event


class Move:
    """Shift of times by the difference of two wall clocks."""

    def __init__(self, by_ns: int) -> None:
        self._by_ns = by_ns

    def __call__(self, at_ns: int) -> int:
        return at_ns + self._by_ns

    def columns(self, at_ns: Ints) -> tuple[Ints, Ints]:
        """Return moved times and their errors."""
        return at_ns + self._by_ns, np.zeros_like(at_ns)


class MoveByMessages(Move):
    """Move of times to the window's clock by exchanged messages. `worst_ns`: the largest error so far."""

    def __init__(self, offset: Offset) -> None:
        self._offset, self.worst_ns = offset, 0

    def __call__(self, at_ns: int) -> Timestamp:
        bounds = self._offset.at(at_ns)
        error_ns = (bounds.width_ns + 1) // 2
        self.worst_ns = max(self.worst_ns, error_ns)
        return Timestamp(at_ns + (bounds.lo_ns + bounds.hi_ns) // 2, error_ns)

    def columns(self, at_ns: Ints) -> tuple[Ints, Ints]:
        offset = self._offset
        lo_ns, hi_ns = np.full_like(at_ns, MOST), np.full_like(at_ns, -MOST)
        index = np.maximum(np.searchsorted(offset.starts_ns, at_ns, "right") - 1, 0)
        for number, lines in enumerate(offset.lines):
            ended_ns = offset.lines[number - 1].end_ns if number else 0
            rows = np.flatnonzero((index == number) | ((index == number - 1) & (at_ns > ended_ns)))
            t = (at_ns[rows] - lines.start_ns).astype(np.float64)
            lo = np.min([lowest + r * t for r, lowest, _ in lines.extremes], axis=0)
            hi = np.max([highest + r * t for r, _, highest in lines.extremes], axis=0)
            # one nanosecond for rounding errors, as `Lines.at`
            lo_ns[rows] = np.minimum(lo_ns[rows], lines.base_ns + np.floor(lo).astype(np.int64) - 1)
            hi_ns[rows] = np.maximum(hi_ns[rows], lines.base_ns + np.ceil(hi).astype(np.int64) + 1)
        error_ns = (hi_ns - lo_ns + 1) // 2
        self.worst_ns = max(self.worst_ns, int(error_ns.max(initial=0)))
        return at_ns + (lo_ns + hi_ns) // 2, error_ns
