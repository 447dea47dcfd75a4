"""Matches puts and gets of a feed: the put that delivered a block, and the get that made room for a put. Pure.

Blocks leave the queue in the order of the puts, so running sums of bytes (items in a user's script) match them.
"""

from collections.abc import Sequence

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import NONE, Ints, places
from dlobd.evidence.recorded_spans import RecordedSpans


def passed_ns(own: Sequence[RecordedSpans], others: Sequence[RecordedSpans], slack_bytes: int = 0) -> tuple[Ints, Ints]:
    """Return for each transfer the time at which the other side had transferred as many bytes, less the slack; and the
    error of this time. The time is 0 if that was always so, and NONE from a transfer of unknown size on.

    For a get it is the end of its block's put. For a put, with the capacity of the pipe as the slack, the pipe has room
    from that time on."""
    (ends_ns, errors_ns, amounts, _), (_, _, needed, place) = _known(others), _known(own)
    moved, none = np.cumsum(amounts), needed == 0  # a get of nothing saw the end of the feed
    needed = np.cumsum(needed) - slack_bytes
    index = np.searchsorted(moved, needed)
    found, error_ns = np.full(sum(map(len, own)), NONE), np.zeros(sum(map(len, own)), np.int64)
    found[place] = np.where(none, NONE, np.where(needed <= 0, 0, np.append(ends_ns, NONE)[index]))
    error_ns[place] = np.append(errors_ns, 0)[index]
    return found, error_ns


def without_reads(spans: RecordedSpans) -> Ints:
    """Return the sorted, disjoint intervals [start, end) in which the feed tasks of a Python worker read no block from
    Spark; shape (n, 2)."""
    tasks, reads = spans.named(kinds.FEED_TASK), spans.named(kinds.READ_BLOCK)
    reads = reads.where(np.argsort(reads.start_ns, kind="stable"))
    first = np.searchsorted(reads.start_ns, tasks.start_ns)
    sizes = np.maximum(0, np.searchsorted(reads.start_ns, tasks.end_ns) - first)
    inside = places(first, sizes)
    # an interval begins with the task, and after each read; it ends with the next read, or with the task
    begins = np.insert(reads.end_ns[inside], np.cumsum(sizes) - sizes, tasks.start_ns)
    ends = np.insert(reads.start_ns[inside], np.cumsum(sizes), tasks.end_ns)
    found = np.stack([begins, ends], axis=1)[begins < ends]
    return found[np.argsort(found[:, 0], kind="stable")]


def _known(parts: Sequence[RecordedSpans]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return end, error of the end, amount and place of the transfers before the first of unknown size, by start."""
    if not parts:
        return (np.zeros(0, np.int64),) * 4
    start_ns = np.concatenate([part.start_ns for part in parts])
    end_ns = np.concatenate([part.end_ns for part in parts])
    error_ns = np.concatenate([part.errors_ns[1] if part.errors_ns else np.zeros_like(part.end_ns) for part in parts])
    by_bytes = np.concatenate([part.has("bytes") for part in parts])
    amount = np.where(
        by_bytes,
        np.concatenate([part.values("bytes") for part in parts]),
        np.concatenate([part.values("items") for part in parts]),
    )
    sized = by_bytes | np.concatenate([part.has("items") for part in parts])
    known = sized & ~np.concatenate([part.truncated for part in parts])
    order = np.argsort(start_ns, kind="stable")
    order = order[: np.argmin(np.append(known[order], False))]
    return end_ns[order], error_ns[order], amount[order], order
