"""Export of a trace in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each lane is a track, normalised as for attribution, so that slices nest as the format requires. Arrows lead from the
span that released a wait to the wait's end, and from the source of a transfer to its destination. A further track shows
the critical path with span and lane. Counters show the sampled use of the machine. The result is a dictionary for
`json.dump`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from dlobd.attribution.attribute import Release, arranged, attribute, critical_path, quality, releases
from dlobd.attribution.nesting import by_lane
from dlobd.attribution.trace import Segment, Span, Trace
from dlobd.evidence.resources import SampledHost
from dlobd.layers import title
from dlobd.schema import Event, Process

_WALL_PID, _WALL_TID, _EVENTS_TID = 1, 1, 2


def trace_events(trace: Trace, sampled: SampledHost | None = None) -> dict[str, object]:
    """Build the trace as one JSON object; times are microseconds since the start of the window. `sampled`: samples of
    dlobd's machine. Raises BundleError like `dlobd.attribution.attribute.attribute`."""
    events: list[dict[str, object]] = [
        _name(_WALL_PID, None, "dlobd: where the wall time went"),
        _name(_WALL_PID, _WALL_TID, "attributed wall"),
        _name(_WALL_PID, _EVENTS_TID, "start-up and teardown"),
        _order(_WALL_PID, None, 0),
        _order(_WALL_PID, _WALL_TID, 0),
        _order(_WALL_PID, _EVENTS_TID, 1),
    ]
    events += (_wall_slice(segment, trace.start_ns) for segment in critical_path(attribute(trace)))
    events += _instants("startup", trace.startup, trace.start_ns)
    events += _instants("teardown", trace.teardown, trace.start_ns)

    spans, lanes = by_lane(trace.spans), arranged(trace)
    pids: dict[Process, int] = {}
    tracks: dict[str, tuple[int, int]] = {}
    for position, lane in enumerate(trace.lanes):
        process = spans[lane][0].process
        if process not in pids:
            pids[process] = len(pids) + 2
            events += [_name(pids[process], None, _title(process)), _order(pids[process], None, position + 1)]
        pid, tid = tracks[lane] = pids[process], position + 1
        events += [_name(pid, tid, lane), _order(pid, tid, position)]
        for nested in lanes[lane].nested:
            events.append(_slice(nested.span, nested.start_ns, nested.end_ns, trace.start_ns, pid, tid))
            events += _flows(nested.span, nested.start_ns, nested.end_ns, trace.start_ns, pid, tid)
    for number, release in enumerate(releases(trace, lanes)):
        events += _release(release, number, trace.start_ns, tracks)
    if sampled:
        events += _counters(sampled, trace)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"wall_ns": trace.wall_ns, "start_ns": trace.start_ns, "clock": "CLOCK_MONOTONIC"},
    }


def microseconds(ns: int) -> float:
    """Convert nanoseconds to the format's microseconds without losing a nanosecond.

    Some viewers multiply by 1000 and truncate. A float just below its decimal value would lose a nanosecond, and
    neighbouring slices would overlap; in this case, use the next larger float.
    """
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
    """Build arrows for the transfers of an exchange.

    A rank does not record times of its peer. So an arrow leads from the start of the sending span to the end of the
    receiving span.
    """
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


def _release(
    release: Release, number: int, zero_ns: int, tracks: dict[str, tuple[int, int]]
) -> Iterator[dict[str, object]]:
    """Build an arrow from the span that released a wait to the end of the wait. The arrow ends in the wait's last
    nanosecond, because viewers attach it to the innermost slice at its timestamp."""
    begins = (release.by, release.at_ns - 1 if release.at_ns > release.by.start_ns else release.at_ns)
    ends = (release.wait, release.wait.end_ns - 1)
    for phase, (nested, at_ns) in (("s", begins), ("f", ends)):
        pid, tid = tracks[nested.span.lane]
        yield {
            "ph": phase,
            "name": "releases",
            "cat": "wait",
            "id": f"wait/{number}",
            "ts": microseconds(at_ns - zero_ns),
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


def _title(process: Process) -> str:
    return f"{process.host} {process.role} {process.index} (pid {process.pid})"


def _name(pid: int, tid: int | None, name: str) -> dict[str, object]:
    return _metadata("name", pid, tid, {"name": name})


def _order(pid: int, tid: int | None, position: int) -> dict[str, object]:
    return _metadata("sort_index", pid, tid, {"sort_index": position})


def _metadata(what: str, pid: int, tid: int | None, args: Mapping[str, object]) -> dict[str, object]:
    if tid is None:
        return {"ph": "M", "name": f"process_{what}", "pid": pid, "args": args}
    return {"ph": "M", "name": f"thread_{what}", "pid": pid, "tid": tid, "args": args}
