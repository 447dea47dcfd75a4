"""Places calls of Hadoop's RPC clients as spans of YARN and HDFS, inside the span of Spark that they interrupt.

Only calls of the lane's own thread count: calls of other threads delay nothing by themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from dlobd import spans as kinds
from dlobd.evidence.rpc import Call
from dlobd.layers import YARN
from dlobd.timeline.builder import LaneBuilder


def place(lane: LaneBuilder, calls: Iterable[Call], source: str, elsewhere: Sequence[tuple[int, int]] = ()) -> None:
    """Add calls of the lane's thread, without those inside a wait before its release, or in an interval `elsewhere`."""
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
