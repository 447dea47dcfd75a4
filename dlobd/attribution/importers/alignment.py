"""Evidence of several hosts on one axis: monotonic clocks of other hosts are brought to that of the window.

A process names its clock domain. A log does not, but its wall and monotonic times lie as far apart as those of the
recorded processes of its host, so that it is of the domain whose anchors are the nearest.

Where a domain exchanged messages with the window's (`dlobd.tracing.clock_sync`), a time is moved by the middle of the
interval that they leave for the offset, and half of that interval is remembered as the error of the moved time.
Without messages it is moved by the difference of the wall clocks, and how far these differ is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlobd.attribution.importers import log4j
from dlobd.attribution.importers.jvm import JvmLife
from dlobd.attribution.importers.log4j import LogLine
from dlobd.attribution.importers.recorder import RecordedProcess
from dlobd.schema import ClockAnchor, Event, Span
from dlobd.tracing.clock_offset import Exchange, Offset

OTHER_CLOCK_NS = 1_000_000_000
"""Clocks whose wall-minus-monotonic times differ by less are taken for one: a log's wall times are read to 1 ms."""

Move = Callable[[int], int]


@dataclass(slots=True)
class MovedClock:
    """A clock domain that is placed by messages."""

    domain: str
    pairs: int
    offset: Offset
    error_ns: int = 0  # the largest of what was moved so far

    @property
    def host(self) -> str:
        """The host of the domain."""
        return self.domain.partition("/")[0]


class Alignment:
    """Moves times to the clock of the window; without a reference everything stays as it is.

    Args:
        reference: anchors of the window's clock, the earliest first.
        processes: what was recorded, with its own times.
    """

    def __init__(self, reference: Sequence[ClockAnchor], processes: Iterable[RecordedProcess] = ()) -> None:
        self._domain = reference[0].domain if reference else None
        self._offset_ns = _ahead_ns(reference[0]) if reference else None
        self._ahead_ns: dict[str, list[int]] = defaultdict(list)
        exchanges: dict[str, list[Exchange]] = defaultdict(list)
        for anchor in reference:
            self._ahead_ns[anchor.domain].append(_ahead_ns(anchor))
        for process in processes:
            self._ahead_ns[process.domain] += map(_ahead_ns, process.anchors)
            exchanges[process.domain] += [pair for domain, pair in process.exchanges if domain == self._domain]
        self.clocks = {
            domain: MovedClock(domain, len(pairs), Offset(pairs))
            for domain, pairs in exchanges.items()
            if pairs and domain != self._domain
        }
        """The other clocks that exchanged messages with the window's, by domain."""
        self.moved: set[str] = set()
        """Hosts, or logs, whose times were moved by wall clocks."""
        self._errors_ns: dict[int, int] = {}

    def error_ns(self, at_ns: int | None) -> int:
        """How far a time that was moved may be off; 0 for one of the window's own clock, or if unknown."""
        return 0 if at_ns is None else self._errors_ns.get(at_ns, 0)

    def span(self, span: Span) -> Span:
        """A span with its resolution widened by the errors of the moved times in it."""
        error_ns = max(map(self.error_ns, (span.start_ns, span.end_ns, span.released_ns)))
        return replace(span, resolution_ns=span.resolution_ns + error_ns) if error_ns else span

    def event(self, event: Event) -> Event:
        """The same for an event."""
        error_ns = self.error_ns(event.at_ns)
        return replace(event, resolution_ns=event.resolution_ns + error_ns) if error_ns else event

    def process(self, process: RecordedProcess) -> RecordedProcess:
        """A process with all its times moved."""
        anchor = process.anchors[0] if process.anchors else None
        move = self._move(process.domain, _ahead_ns(anchor) if anchor else None, process.process.host)
        if move is None:
            return process
        begun_ns = process.process.start_ns
        process.process = replace(process.process, start_ns=None if begun_ns is None else move(begun_ns))
        process.opened_ns = move(process.opened_ns)
        process.last_ns = move(process.last_ns)
        for span in process.spans:
            span.start_ns, span.end_ns = move(span.start_ns), move(span.end_ns)
        process.instants = [replace(instant, at_ns=move(instant.at_ns)) for instant in process.instants]
        process.uses = [replace(use, at_ns=move(use.at_ns)) for use in process.uses]
        process.anchors = [replace(each, monotonic_ns=move(each.monotonic_ns)) for each in process.anchors]
        return process

    def log(self, path: Path, source: str) -> list[LogLine]:
        """The lines of a log, with their times moved."""
        move = self._move_of_log(path, source)
        lines = log4j.read(path, source)
        return [replace(line, at_ns=move(line.at_ns)) for line in lines] if move else lines

    def jvm(self, life: JvmLife | None, log: Path, source: str) -> JvmLife | None:
        """A JVM's life, whose own log has no wall clock; `log` is one that the same JVM wrote."""
        move = self._move_of_log(log, source)
        if life is None or move is None:
            return life
        return replace(
            life,
            start_ns=move(life.start_ns),
            exit_ns=None if life.exit_ns is None else move(life.exit_ns),
            created_ns=None if life.created_ns is None else move(life.created_ns),
            pauses=tuple((move(begin), move(end)) for begin, end in life.pauses),
        )

    def log4j_configured(self, path: Path, source: str) -> tuple[int, int] | None:
        """`log4j.configured` of a log, moved."""
        move, bounds = self._move_of_log(path, source), log4j.configured(path)
        return (move(bounds[0]), move(bounds[1])) if move and bounds else bounds

    def _move_of_log(self, path: Path, source: str) -> Move | None:
        offset_ns = log4j.offset_ns(path)
        return self._move(None if offset_ns is None else self._nearest(offset_ns), offset_ns, source)

    def _nearest(self, offset_ns: int) -> str | None:
        """The domain in which wall and monotonic time are so far apart; the window's own rather than another one."""
        _, _, domain = min(
            (
                (abs(offset_ns - ahead_ns), domain != self._domain, domain)
                for domain, each in self._ahead_ns.items()
                for ahead_ns in each
                if abs(offset_ns - ahead_ns) <= OTHER_CLOCK_NS
            ),
            default=(0, False, None),
        )
        return domain

    def _move(self, domain: str | None, offset_ns: int | None, who: str) -> Move | None:
        """What moves the times of a clock; None where they stay.

        Args:
            domain: None where it is not known.
            offset_ns: how far its wall time is ahead of its monotonic time, if known.
        """
        if self._domain is None or self._offset_ns is None or domain == self._domain:
            return None
        if domain in self.clocks:
            return self._by_messages(self.clocks[domain])
        by_ns = 0 if offset_ns is None else offset_ns - self._offset_ns
        if abs(by_ns) <= OTHER_CLOCK_NS:
            return None
        self.moved.add(who)
        return lambda at_ns: at_ns + by_ns

    def _by_messages(self, clock: MovedClock) -> Move:
        def move(at_ns: int) -> int:
            bounds = clock.offset.at(at_ns)
            moved_ns = at_ns + (bounds.lo_ns + bounds.hi_ns) // 2
            error_ns = (bounds.width_ns + 1) // 2
            # lanes pass times on as they are: so a time tells its error, whatever it has become a part of
            self._errors_ns[moved_ns] = max(error_ns, self._errors_ns.get(moved_ns, 0))
            clock.error_ns = max(error_ns, clock.error_ns)
            return moved_ns

        return move


def _ahead_ns(anchor: ClockAnchor) -> int:
    return anchor.wall_ns - anchor.monotonic_ns
