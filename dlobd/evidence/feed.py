"""Which put gave a get its block, and which get made room for a put. Blocks are taken in the order in which they were
put, so that the bytes alone say it; or the items, of a script's own rows. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedSpan


def given_ns(gets: Sequence[RecordedSpan], puts: Sequence[RecordedSpan]) -> dict[int, int]:
    """Start of each get -> when its block had been put. A get that does not say how much it took ends the list."""
    return _passed(_known(gets), _known(puts), 0)


def room_ns(puts: Sequence[RecordedSpan], gets: Sequence[RecordedSpan], capacity_bytes: int) -> dict[int, int]:
    """Start of each put -> when all that was put before it, and its own block, no longer filled the pipe.

    Where the pipe never was too full for it, that is before anything was put."""
    return _passed(_known(puts), _known(gets), capacity_bytes)


def without_reads(spans: Sequence[RecordedSpan]) -> list[tuple[int, int]]:
    """Return the sorted, disjoint intervals in which the feed tasks of a Python worker read no block of Spark."""
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


def _passed(ones: Sequence[RecordedSpan], others: Sequence[RecordedSpan], slack_bytes: int) -> dict[int, int]:
    """Start of each one -> the end of that other one with which the others had moved as many bytes, less the slack."""
    moved = list(accumulate(_amount(span) for span in others))
    found = {}
    for one, upto in zip(ones, accumulate(_amount(span) for span in ones), strict=True):
        needed = upto - slack_bytes
        if not _amount(one):
            continue  # the end of the feed, which no put delivered
        if needed <= 0:
            found[one.start_ns] = 0
        elif (index := bisect_left(moved, needed)) < len(others):
            found[one.start_ns] = others[index].end_ns
    return found


def _known(spans: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """In their order, up to the first that did not end or does not say how much it moved."""
    known = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        if span.truncated or not {"bytes", "items"} & span.attrs.keys():
            break
        known.append(span)
    return known


def _amount(span: RecordedSpan) -> int:
    return int(span.attrs["bytes"] if "bytes" in span.attrs else span.attrs["items"])
