"""Export of a trace in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each lane is a track, normalised as for attribution, so that slices nest as the format requires. Arrows lead from the
span that released a wait to the wait's end, and from the source of a transfer to its destination. A further track shows
the critical path with span and lane. Counters show the sampled use of the machine. The result is a dictionary for
`json.dump`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np

from dlobd.attribution.attribute import attribute, critical_path, nested, quality, releases
from dlobd.attribution.nesting import Nested
from dlobd.attribution.trace import Segment, Span, Trace
from dlobd.columns import MOST, Flags, Ints
from dlobd.evidence.resources import SampledHost
from dlobd.layers import title
from dlobd.schema import Event, Process

_WALL_PID, _WALL_TID, _EVENTS_TID = 1, 1, 2

BLOCK = 1 << 16
"""Number of spans that are converted at once."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Part of a trace: an interval of the window, in nanoseconds from its start, and lanes by names or patterns."""

    from_ns: int = 0
    to_ns: int | None = None
    lanes: Sequence[str] = ("*",)

    def has(self, lane: str) -> bool:
        """Return True for a selected lane."""
        return any(fnmatchcase(lane, pattern.strip()) for pattern in self.lanes)

    def flags(self, start_ns: Ints, end_ns: Ints, zero_ns: int) -> Flags:
        """Return True for each interval that overlaps the selection."""
        flags: Flags = (end_ns > zero_ns + self.from_ns) & (start_ns < zero_ns + (self.to_ns or MOST))
        return flags


ALL = Selection()


def members(trace: Trace) -> dict[str, object]:
    """Return the members of the JSON object, without `traceEvents`."""
    window = {"wall_ns": trace.wall_ns, "start_ns": trace.start_ns, "clock": "CLOCK_MONOTONIC"}
    return {"displayTimeUnit": "ms", "otherData": window}


def events(trace: Trace, sampled: SampledHost | None = None, selection: Selection = ALL) -> Iterator[dict[str, object]]:
    """Yield the events; times are microseconds since the start of the window. `sampled`: samples of dlobd's machine.
    Raises BundleError like `dlobd.attribution.attribute.attribute`."""
    yield _metadata(_WALL_PID, None, "name", "dlobd: where the wall time went")
    yield _metadata(_WALL_PID, _WALL_TID, "name", "attributed wall")
    yield _metadata(_WALL_PID, _EVENTS_TID, "name", "start-up and teardown")
    yield _metadata(_WALL_PID, None, "sort_index", 0)
    yield _metadata(_WALL_PID, _WALL_TID, "sort_index", 0)
    yield _metadata(_WALL_PID, _EVENTS_TID, "sort_index", 1)
    zero_ns, path = trace.start_ns, critical_path(attribute(trace))
    for some in blocks(np.flatnonzero(selection.flags(path.start_ns, path.end_ns, zero_ns))):
        yield from (_wall_slice(one, zero_ns) for one in path.rows(some))
    yield from _instants("startup", trace.startup, zero_ns)
    yield from _instants("teardown", trace.teardown, zero_ns)

    spans, columns = trace.spans, nested(trace)
    lane = spans.lane[columns.row]
    kept = np.array([*map(selection.has, spans.lanes)])[lane] & selection.flags(
        columns.start_ns, columns.end_ns, zero_ns
    )
    pids: dict[Process, int] = {}
    tracks: dict[int, tuple[int, int]] = {}
    numbers = {name: number for number, name in enumerate(spans.lanes)}
    process_of = {numbers[origin.lane]: origin.process for origin in reversed(spans.origins)}
    first = np.searchsorted(lane, np.arange(len(spans.lanes) + 1)).tolist()
    for position, name in enumerate(trace.lanes):
        number = numbers[name]
        process = process_of[number]
        if process not in pids:
            pids[process] = len(pids) + 2
            words = f"{process.host} {process.role} {process.index} (pid {process.pid})"
            yield _metadata(pids[process], None, "name", words)
            yield _metadata(pids[process], None, "sort_index", position + 1)
        pid, tid = tracks[number] = pids[process], position + 1
        yield _metadata(pid, tid, "name", name)
        yield _metadata(pid, tid, "sort_index", position)
        for some in blocks(first[number] + np.flatnonzero(kept[first[number] : first[number + 1]])):
            bounds = columns.start_ns[some].tolist(), columns.end_ns[some].tolist()
            for span, start_ns, end_ns in zip(spans.rows(columns.row[some]), *bounds, strict=True):
                yield _slice(span, start_ns, end_ns, zero_ns, pid, tid)
                yield from _flows(span, start_ns, end_ns, zero_ns, pid, tid)
    yield from _releases(trace, columns, kept, tracks)
    if sampled:
        yield from _counters(sampled, trace)


def blocks(places: Ints) -> list[Ints]:
    """Split places into blocks, so that few rows are in memory."""
    return np.split(places, range(BLOCK, len(places), BLOCK))


def microseconds(ns: int) -> float:
    """Convert nanoseconds to the format's microseconds. Some viewers multiply by 1000 and truncate: a float just below
    its decimal value would lose a nanosecond, so the next larger float replaces it."""
    value = ns / 1000
    while int(value * 1000) < ns:
        value = math.nextafter(value, math.inf)
    return value


def _slice(span: Span, start_ns: int, end_ns: int, zero_ns: int, pid: int, tid: int) -> dict[str, object]:
    args: dict[str, object] = {"layer": span.layer, "span": span.id, "resolution_ns": span.resolution_ns}
    if (start_ns, end_ns) != (span.start_ns, span.end_ns):
        args |= {"recorded_start_ns": span.start_ns - zero_ns, "recorded_end_ns": span.end_ns - zero_ns}
    optional = {
        "source": span.source,
        "waits_for": list(span.waits_for),
        "rendezvous": span.rendezvous,
        "cause": span.cause,
        "truncated": span.truncated,
    }
    args |= {key: value for key, value in optional.items() if value}
    return _complete(span.name, span.layer, start_ns - zero_ns, end_ns - start_ns, pid, tid, args | dict(span.attrs))


def _wall_slice(segment: Segment, zero_ns: int) -> dict[str, object]:
    layer = title(segment.layer)
    name = f"{layer}: {segment.span.name}" if segment.span else layer
    if segment.kind == "unexplained":
        name += " (unexplained)"
    elif segment.kind == "cause" and segment.span:
        name += f" ({segment.span.cause})"
    args = {"layer": segment.layer, "degree": quality(segment), "kind": segment.kind, "lanes": list(segment.chain)}
    length_ns = segment.end_ns - segment.start_ns
    return _complete(name, segment.layer, segment.start_ns - zero_ns, length_ns, _WALL_PID, _WALL_TID, args)


def _complete(
    name: str, layer: str, at_ns: int, length_ns: int, pid: int, tid: int, args: Mapping[str, object]
) -> dict[str, object]:
    times = {"ts": microseconds(at_ns), "dur": microseconds(length_ns)}
    return {"ph": "X", "name": name, "cat": layer, **times, "pid": pid, "tid": tid, "args": args}


def _flows(span: Span, start_ns: int, end_ns: int, zero_ns: int, pid: int, tid: int) -> Iterator[dict[str, object]]:
    """Build arrows for the transfers of an exchange, from the start of the sending span to the end of the receiving
    span, because a rank does not record times of its peer."""
    for source, destination, size, bucket in span.attrs.get("transfers", ()):
        name = f"{source} to {destination}"
        flow = {
            "name": name,
            "cat": "transfer",
            "id": f"{span.attrs.get('call')}/{bucket}/{name}",
            "pid": pid,
            "tid": tid,
        }
        # ranks are given by number, parameter servers by the name of their lane
        if span.lane == f"rank-{source}" or span.lane.startswith(f"{source}/"):
            yield {"ph": "s", "ts": microseconds(start_ns - zero_ns), **flow, "args": {"bytes": size}}
        else:
            yield {"ph": "f", "bp": "e", "ts": microseconds(max(start_ns, end_ns - 1) - zero_ns), **flow}


def _releases(
    trace: Trace, columns: Nested, kept: Flags, tracks: Mapping[int, tuple[int, int]]
) -> Iterator[dict[str, object]]:
    """Build arrows from the span that released a wait to the end of the wait. An arrow ends in the wait's last
    nanosecond, because viewers attach it to the innermost slice at its timestamp."""
    wait, by, at_ns = releases(trace, columns)
    lane = trace.spans.lane[columns.row]
    begins_ns = np.where(at_ns > columns.start_ns[by], at_ns - 1, at_ns)
    sides = (("s", lane[by], begins_ns), ("f", lane[wait], columns.end_ns[wait] - 1))
    shown = kept[wait] & kept[by]
    for number in np.flatnonzero(shown).tolist():
        for phase, lanes, times_ns in sides:
            pid, tid = tracks[int(lanes[number])]
            yield {
                "ph": phase,
                "name": "releases",
                "cat": "wait",
                "id": f"wait/{number}",
                "ts": microseconds(int(times_ns[number]) - trace.start_ns),
                "pid": pid,
                "tid": tid,
                **({"bp": "e"} if phase == "f" else {}),
            }


def _instants(phase: str, events: Iterable[Event], zero_ns: int) -> Iterator[dict[str, object]]:
    for event in events:
        yield {
            "ph": "i",
            "s": "g",  # drawn over all tracks
            "name": event.event,
            "cat": phase,
            "ts": microseconds(event.at_ns - zero_ns),
            "pid": _WALL_PID,
            "tid": _EVENTS_TID,
            "args": {"source": event.source, "clock": event.clock, "resolution_ns": event.resolution_ns},
        }


def _counters(sampled: SampledHost, trace: Trace) -> Iterator[dict[str, object]]:
    """Build counter events: CPU and rates hold between two samples, memory from its sample until the next."""
    for before, after in pairwise(sampled.samples):
        start_ns, end_ns = max(before.at_ns, trace.start_ns), min(after.at_ns, trace.end_ns)
        if end_ns <= start_ns:
            continue
        length_ns = after.at_ns - before.at_ns
        busy = (after.cpu_busy_ns - before.cpu_busy_ns) / (length_ns * sampled.cores)
        at = microseconds(start_ns - trace.start_ns)
        yield _counter("CPU busy, %", at, {"busy": round(100 * busy, 1)})
        yield _counter("memory in use, MB", at, {"used": round(before.memory_bytes / 1e6, 1)})
        for index, gpu in enumerate(after.gpus):
            if gpu:
                yield _counter(f"GPU {index} busy, %", at, {"busy": gpu[0]})


def _counter(name: str, at_us: float, values: dict[str, float]) -> dict[str, object]:
    return {"ph": "C", "name": name, "ts": at_us, "pid": _WALL_PID, "args": values}


def _metadata(pid: int, tid: int | None, what: str, value: object) -> dict[str, object]:
    """Set `what`, name or sort_index, of a process or of its thread."""
    thread: dict[str, object] = {} if tid is None else {"tid": tid}
    return {
        "ph": "M",
        "name": f"{'thread' if thread else 'process'}_{what}",
        "pid": pid,
        **thread,
        "args": {what: value},
    }
