"""Builds lanes: spans that logs describe, with IDs, and recorded spans."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import Origin, Span, Spans
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.rpc import Call
from dlobd.layers import YARN
from dlobd.schema import Process
from dlobd.spans import Details, SpanKind
from dlobd.timeline.recorded import OWN_MARK, Handover, Lanes, Resolve, placed, without_roles

Part = Span | Spans
"""A span that logs describe, or recorded spans."""


@dataclass(slots=True)
class LaneBuilder:
    """Collector of the spans of one lane. `since_ns`: the start of the part of the lane that it builds, for a lane with
    several parts, so that the IDs of spans are unique in a trace."""

    lane: str
    process: Process
    since_ns: int | None = None
    parts: list[Part] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        return [span for part in self.parts for span in ((part,) if isinstance(part, Span) else part)]

    def add(
        self,
        kind: SpanKind,
        start_ns: int | None,
        end_ns: int | None,
        source: str,
        *,
        resolution_ns: int = 1,
        process: Process | None = None,
        **more: Unpack[Details],
    ) -> None:
        """Add a span unless a bound is unknown or both are equal. `nesting` corrects an end before the start."""
        if start_ns is None or end_ns is None or end_ns == start_ns:
            return
        where = (self._next_id, None, kind, process or self.process, self.lane)
        self.parts.append(Span(*where, start_ns, end_ns, source=source, resolution_ns=resolution_ns, **more))

    @property
    def _next_id(self) -> str:
        part = "" if self.since_ns is None else f"{self.process.pid}-{self.since_ns}/"
        return f"{self.lane}/{part}{len(self.parts)}"

    def log(
        self, kind: SpanKind, start_ns: int | None, end_ns: int | None, source: str, **more: Unpack[Details]
    ) -> None:
        """Add a span whose bounds have the resolution of log lines; see `add`."""
        self.add(kind, start_ns, end_ns, source, resolution_ns=RESOLUTION_NS, **more)

    def add_recorded(
        self,
        process: RecordedProcess,
        spans: RecordedSpans | None = None,
        resolve: Resolve = without_roles,
        lanes: Lanes | None = None,
        handover: Handover | None = None,
    ) -> None:
        """Add recorded spans, by default those of the main thread; see `placed`."""
        if spans is None:
            spans = process.spans.where(process.spans.in_main_thread)
        if handover is not None:
            origin = Origin(self.lane, self.process, OWN_MARK, f"{self._next_id}-")
            self.parts.append(handover.spans(origin, spans))
        self.parts.append(placed(self.lane, process, spans, resolve, lanes, handover))


def spans_of(parts: Iterable[Part], wanted: Callable[[SpanKind], bool]) -> Iterator[Span]:
    """Yield the spans of wanted kinds."""
    for part in parts:
        if isinstance(part, Spans):
            yield from part.rows(np.flatnonzero(part.of_kinds(wanted)))
        elif wanted(part.kind):
            yield part


def begin_ns(parts: Iterable[Part]) -> int | None:
    """Return the first start; None without a span."""
    return min(
        (part.start_ns if isinstance(part, Span) else int(part.start_ns.min()) for part in parts if part), default=None
    )


def of_threads(
    lane: str, process: RecordedProcess, spans: RecordedSpans, resolve: Resolve = without_roles
) -> list[Part]:
    """Return spans of the other threads of a process, in one lane per thread."""
    threads = spans.other_threads()
    return [placed(f"{lane}/{name}", process, spans.where(some), resolve) for name, some in threads]


def place_calls(
    lane: LaneBuilder, calls: Iterable[Call], source: str, elsewhere: Sequence[tuple[int, int]] = ()
) -> None:
    """Add calls of the lane's thread, except in waits before their release and in the sorted intervals `elsewhere`."""
    waits = [span for span in lane.spans if span.waits_for]
    for call in calls:
        if any(
            wait.start_ns <= call.start_ns < (wait.end_ns if wait.released_ns is None else wait.released_ns)
            for wait in waits
        ):
            continue
        attrs = {"path": call.path} if call.path else {}
        kind = kinds.RPC if call.layer == YARN else kinds.NAMENODE_CALL
        for start_ns, end_ns in _without(call.start_ns, call.end_ns, elsewhere):
            lane.log(kind, start_ns, end_ns, source, detail=call.method, attrs=attrs)


def _without(start_ns: int, end_ns: int, others: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of [start_ns, end_ns) outside of `others`, which are sorted and disjoint."""
    for begun_ns, ended_ns in others[bisect_right(others, start_ns, key=lambda other: other[1]) :]:
        if begun_ns >= end_ns:
            break
        if start_ns < begun_ns:
            yield start_ns, begun_ns
        start_ns = ended_ns
    if start_ns < end_ns:
        yield start_ns, end_ns


def poll_ns(calls: Sequence[Call], method: str, end_ns: int) -> int | None:
    """Return the sleep of a poller before its last call that began before `end_ns`."""
    last, before = None, None
    for call in calls:
        if call.method == method and call.start_ns < end_ns:
            last, before = call, last
    if last is None or before is None or last.thread != before.thread:
        return None
    return last.start_ns - before.end_ns
