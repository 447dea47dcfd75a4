"""Builds lanes: spans that logs describe, with IDs, and recorded spans, columns to columns.

Only waits of recorded spans for a role, such as the last trainer, are resolved one by one."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import NOT_RELEASED, Origin, Span, Spans, Wait
from dlobd.columns import NONE, Codes, Flags, Ints, Numbers
from dlobd.errors import BundleError
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.rpc import Call
from dlobd.evidence.timestamp import error_of
from dlobd.layers import YARN
from dlobd.schema import Process
from dlobd.spans import Details, SpanKind, cause_of, kind_of

Part = Span | Spans
"""A span that logs describe, or recorded spans."""

OWN_MARK = "own mark"

Resolve = Callable[[RecordedSpan, Details], Details]
"""Returns the wait of a `Span`, which names lanes, for a recorded wait, which names roles such as `@trainers`."""

Lanes = Mapping[str, tuple[str, ...]]
"""Role -> the lanes that release its waits."""


@dataclass(frozen=True, slots=True)
class Handover:
    """End of transfers in which the other side was done: a span of `kind` from `since_ns` of each transfer on; NONE if
    unknown. A transfer that is a handover as a whole is no wait."""

    kind: SpanKind
    since_ns: Ints
    error_ns: Ints

    def spans(self, origin: Origin, recorded: RecordedSpans) -> Spans:
        """Return the handovers inside of transfers."""
        inside = np.flatnonzero((recorded.start_ns < self.since_ns) & (self.since_ns < recorded.end_ns))
        number, error_ns = np.arange(len(inside)), self.error_ns[inside]
        if recorded.errors_ns:
            error_ns = np.maximum(error_ns, recorded.errors_ns[1][inside])
        bounds = self.since_ns[inside], recorded.end_ns[inside]
        return Spans.made(origin, [(self.kind, "")], *bounds, number=number, resolution_ns=1 + error_ns)


def without_roles(span: RecordedSpan, wait: Details) -> Details:
    """Return a wait without the roles that it waits for."""
    return {**wait, "waits_for": tuple(lane for lane in wait.get("waits_for", ()) if not lane.startswith("@"))}


def placed(
    lane: str,
    process: RecordedProcess,
    spans: RecordedSpans,
    resolve: Resolve = without_roles,
    lanes: Lanes | None = None,
    handover: Handover | None = None,
) -> Spans:
    """Return recorded spans as spans of a lane. Raises BundleError for an unregistered kind.

    Args:
        resolve: returns the waits for other roles than those of `lanes`.
    """
    kind, of_kinds = _kinds(process, spans)
    origin = Origin(lane, process.process, OWN_MARK, f"{lane}/{process.process.pid}-{process.opened_ns}-")
    resolution_ns = 1 + (np.maximum(*spans.errors_ns) if spans.errors_ns else np.zeros_like(spans.start_ns))
    waits, released_ns = Numbers[Wait](), np.full_like(spans.start_ns, NOT_RELEASED)
    wait, by_row = _waits(spans, waits, released_ns, lanes or {})
    by_row |= spans.is_kind(kinds.WAIT_FOR_STREAM)
    for row, span in zip(np.flatnonzero(by_row).tolist(), spans.where(by_row), strict=True):
        found = resolve(span, {**span.wait})
        wait[row] = waits[_wait(found, span.rendezvous)]
        at_ns = found.get("released_ns")
        released_ns[row] = NOT_RELEASED if at_ns is None else at_ns
        resolution_ns[row] = max(resolution_ns[row], 1 + error_of(at_ns))
    if handover is not None:
        whole = (handover.since_ns != NONE) & (handover.since_ns <= spans.start_ns)
        wait[whole], released_ns[whole] = waits[Wait()], NOT_RELEASED
    return Spans.made(
        origin,
        of_kinds,
        spans.start_ns,
        # a span without an end has no known duration
        np.where(spans.truncated, spans.end_ns, np.maximum(spans.end_ns, spans.start_ns + 1)),
        number=spans.id,
        parent=spans.outer,
        kind=kind,
        resolution_ns=resolution_ns,
        wait=wait,
        waits=list(waits),
        released_ns=released_ns,
        call=spans.call,
        attrs=spans.attrs,
        attributes=spans.attributes,
        truncated=spans.truncated,
    )


def _kinds(process: RecordedProcess, spans: RecordedSpans) -> tuple[Codes, list[tuple[SpanKind, str]]]:
    used, kind = np.unique(spans.kind, return_inverse=True)
    found = []
    for layer, name in (spans.kinds[code] for code in used.tolist()):
        if (row := kind_of(layer, name)) is None:
            raise BundleError(
                f"{process.path} has a span of unknown kind: layer {layer!r}, name {name!r}.",
                "read the run with the version of dlobd that recorded it",
            )
        found.append(row)
    return kind.astype(np.int32), found


def _waits(spans: RecordedSpans, waits: Numbers[Wait], released_ns: Ints, lanes: Lanes) -> tuple[Codes, Flags]:
    """Return the wait of each span, and True for waits for a role without lanes. Sets `released_ns`."""
    used, place = np.unique(spans.wait, return_inverse=True)
    found, unresolved = np.zeros(len(used), np.int32), np.zeros(len(used), np.bool_)
    for number, (details, rendezvous) in enumerate(spans.waits[code] for code in used.tolist()):
        target = next(iter(details.get("waits_for", ())), "")
        known = details | Details(waits_for=lanes[target]) if target in lanes else details
        found[number] = waits[_wait(known, rendezvous)]
        unresolved[number] = any(lane.startswith("@") for lane in known.get("waits_for", ()))
        if (at_ns := details.get("released_ns")) is not None:
            released_ns[place == number] = at_ns
    return found[place], unresolved[place]


def _wait(details: Details, rendezvous: str) -> Wait:
    cause = details.get("cause", "")
    kind = cause_of(cause) if cause else None
    return Wait(tuple(details.get("waits_for", ())), cause, kind, details.get("cause_period_ns", 0), rendezvous)


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
