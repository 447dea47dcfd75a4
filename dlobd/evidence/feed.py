"""Matches puts and gets of a feed: the put that delivered a block, and the get that made room for a put. Pure.

Blocks leave the queue in the order of the puts, so running sums of bytes (items in a user's script) match them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedSpan


def given_ns(gets: Sequence[RecordedSpan], puts: Sequence[RecordedSpan]) -> dict[int, int]:
    """Map the start of each get to the end of its block's put; stop at a get of unknown size."""
    return _passed(_known(gets), _known(puts), 0)


def room_ns(puts: Sequence[RecordedSpan], gets: Sequence[RecordedSpan], capacity_bytes: int) -> dict[int, int]:
    """Map the start of each put to the time at which the pipe had room for its block; 0 if it always had."""
    return _passed(_known(puts), _known(gets), capacity_bytes)


def without_reads(spans: Sequence[RecordedSpan]) -> list[tuple[int, int]]:
    """Return the sorted, disjoint intervals in which the feed tasks of a Python worker read no block from Spark."""
    found = []
    reads = sorted((span.start_ns, span.end_ns) for span in spans if span.name == kinds.READ_BLOCK)
    for task in spans:
        if task.name != kinds.FEED_TASK:
            continue
        begun_ns = task.start_ns
        for start_ns, end_ns in reads[bisect_left(reads, (task.start_ns,)) : bisect_left(reads, (task.end_ns,))]:
            if begun_ns < start_ns:
                found.append((begun_ns, start_ns))
            begun_ns = end_ns
        if begun_ns < task.end_ns:
            found.append((begun_ns, task.end_ns))
    return found


def _passed(own: Sequence[RecordedSpan], others: Sequence[RecordedSpan], slack_bytes: int) -> dict[int, int]:
    """Map the start of each transfer to the time at which the other side had transferred as many bytes, less the
    slack."""
    moved = list(accumulate(_amount(span) for span in others))
    found = {}
    for one, upto in zip(own, accumulate(_amount(span) for span in own), strict=True):
        needed = upto - slack_bytes
        if not _amount(one):
            continue  # the get saw the end of the feed
        if needed <= 0:
            found[one.start_ns] = 0
        elif (index := bisect_left(moved, needed)) < len(others):
            found[one.start_ns] = others[index].end_ns
    return found


def _known(spans: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    known = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        if span.truncated or not {"bytes", "items"} & span.attrs.keys():
            break
        known.append(span)
    return known


def _amount(span: RecordedSpan) -> int:
    return int(span.attrs["bytes"] if "bytes" in span.attrs else span.attrs["items"])
