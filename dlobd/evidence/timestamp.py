"""A point in time with the error of its clock."""

from __future__ import annotations

from dataclasses import replace

from dlobd.schema import Event, Span


class Timestamp(int):
    """Nanoseconds on the clock of the window, moved there from another clock.

    Arithmetic gives a plain int without an error: a length or a shifted time is no moved timestamp. `max`, `min` and
    sorting return the timestamp itself.
    """

    error_ns: int

    def __new__(cls, ns: int, error_ns: int = 0) -> Timestamp:
        timestamp = super().__new__(cls, ns)
        timestamp.error_ns = error_ns
        return timestamp


def error_of(at_ns: int | None) -> int:
    """Return how far a time may be off; 0 for one of the window's own clock, or if the error is unknown."""
    return at_ns.error_ns if isinstance(at_ns, Timestamp) else 0


def widened_span(span: Span) -> Span:
    """Add the largest error of a span's times to its resolution."""
    error_ns = max(map(error_of, (span.start_ns, span.end_ns, span.released_ns)))
    return replace(span, resolution_ns=span.resolution_ns + error_ns) if error_ns else span


def widened_event(event: Event) -> Event:
    """Add the error of an event's time to its resolution."""
    error_ns = error_of(event.at_ns)
    return replace(event, resolution_ns=event.resolution_ns + error_ns) if error_ns else event
