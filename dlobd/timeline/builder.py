"""Makes spans with IDs, and copies recorded spans to a lane."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Unpack

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.errors import BundleError
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.evidence.rpc import Call
from dlobd.layers import YARN
from dlobd.schema import Process
from dlobd.spans import Details, SpanKind, cause_of, kind_of

OWN_MARK = "own mark"

Resolve = Callable[[RecordedSpan, Details], Details]
"""Turns a recorded wait, which names roles such as `@feeder`, into the wait of a `Span`, which names lanes."""


@dataclass(slots=True)
class LaneBuilder:
    """Collector of the spans of one lane. `since_ns`: the start of the part of the lane that it builds, for a lane with
    several parts, so that the IDs of spans are unique in a trace."""

    lane: str
    process: Process
    since_ns: int | None = None
    spans: list[Span] = field(default_factory=list)

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
        part = "" if self.since_ns is None else f"{self.process.pid}-{self.since_ns}/"
        where = (f"{self.lane}/{part}{len(self.spans)}", None, kind, process or self.process, self.lane)
        self.spans.append(Span(*where, start_ns, end_ns, source=source, resolution_ns=resolution_ns, **more))

    def log(
        self, kind: SpanKind, start_ns: int | None, end_ns: int | None, source: str, **more: Unpack[Details]
    ) -> None:
        """Add a span whose bounds have the resolution of log lines; see `add`."""
        self.add(kind, start_ns, end_ns, source, resolution_ns=RESOLUTION_NS, **more)

    def add_recorded(
        self,
        process: RecordedProcess,
        spans: Iterable[RecordedSpan] | None = None,
        resolve: Resolve = lambda span, wait: wait,
    ) -> None:
        """Add recorded spans, by default those of the main thread. Raises BundleError for an unregistered kind."""
        prefix = f"{self.lane}/{process.process.pid}-{process.opened_ns}"
        for span in [s for s in process.spans if not s.thread] if spans is None else spans:
            number = span.call is not None
            wait = resolve(span, {**span.wait})
            more: Details = {**wait, "truncated": span.truncated, "attrs": span.attrs}
            more["waits_for"] = tuple(wait.get("waits_for", ()))
            if cause := wait.get("cause"):
                more["cause_kind"] = cause_of(cause)
            if (found := kind_of(span.layer, span.name)) is None:
                raise BundleError(
                    f"{process.path} has a span of unknown kind: layer {span.layer!r}, name {span.name!r}.",
                    "read the run with the version of dlobd that recorded it",
                )
            kind, more["detail"] = found
            self.spans.append(
                Span(
                    f"{prefix}-{span.id}",
                    f"{prefix}-{span.parent}" if span.parent else None,
                    kind,
                    process.process,
                    self.lane,
                    span.start_ns,
                    # a span without an end has no known duration
                    span.end_ns if span.truncated else max(span.end_ns, span.start_ns + 1),
                    source=OWN_MARK,
                    # all members of a collective share this key, such as `step 7`
                    rendezvous=f"{span.rendezvous} {span.call}" if span.rendezvous and number else span.rendezvous,
                    call=span.call,
                    **more,
                )
            )


def of_threads(lane: str, process: RecordedProcess, spans: Sequence[RecordedSpan], resolve: Resolve) -> list[Span]:
    """Return spans of the other threads of a process, in one lane per thread."""
    found: list[Span] = []
    for thread in sorted({span.thread for span in spans if span.thread}):
        beside = LaneBuilder(f"{lane}/{thread}", process.process)
        beside.add_recorded(process, [span for span in spans if span.thread == thread], resolve)
        found += beside.spans
    return found


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
