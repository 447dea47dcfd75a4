"""Durations of steps over time, with their parts: input wait, compute, channel, other.

Time between two steps is input wait, or other work such as a checkpoint. Many steps are grouped into bins of equal size
with minimum, median and maximum duration; the parts of a bin are exact sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.report.page.source import Source

MOST_BINS = 240
"""Maximum bins per rank."""

INPUT = frozenset({kinds.NEXT_BATCH, kinds.INPUT_WAIT, kinds.GET, kinds.AWAIT_BLOCK, kinds.DECODE, kinds.AUGMENT})

PARTS = ("input wait", "compute", "channel", "other")


class _Step(NamedTuple):
    start_ns: int
    end_ns: int
    parts: tuple[int, int, int, int]

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


def steps(source: Source) -> dict[str, object]:
    """Build each rank's bins [from step, until step, start, end, minimum, median, maximum, parts...]. Times count from
    the window's start. `channel_inside`: True if compute contains the exchange, without a measured boundary."""
    if source.trace is None or source.frames is None:
        return {"ranks": [], "parts": PARTS, "channel_inside": False}
    zero_ns = source.trace.start_ns
    stepping = stepping_lanes(source.trace.spans)
    # only the rank's own lanes: reader lanes run in parallel and are not waits
    lanes: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for span in source.trace.spans:
        if span.lane in stepping:
            lanes[span.process.role, span.process.index].append(span)
    ranks = []
    frame = source.frames.steps()
    for role, index in dict.fromkeys(zip(frame["role"], frame["index"], strict=True)):
        rows = frame[(frame["role"] == role) & (frame["index"] == index)]
        bounds = list(zip(rows["start_ns"] + zero_ns, rows["end_ns"] + zero_ns, strict=True))
        found = list(_steps([(int(start), int(end)) for start, end in bounds], lanes[role, index]))
        ranks.append({"rank": f"{role} {index}", "steps": len(found), "bins": list(_bins(found, zero_ns))})
    inside = any(row.layer == "channel" and row.inside == "tensorflow" for row in source.run.not_measured)
    return {"ranks": ranks, "parts": PARTS, "channel_inside": inside}


def stepping_lanes(spans: Sequence[Span]) -> dict[str, str]:
    """Return the lanes with steps in order, with the names of their ranks."""
    steps_ = (span for span in spans if span.call is not None and span.name in (kinds.STEP, kinds.FIRST_STEP))
    found = {span.lane: f"{span.process.role} {span.process.index}" for span in steps_}
    return dict(sorted(found.items()))


def _steps(bounds: Sequence[tuple[int, int]], spans: Iterable[Span]) -> Iterator[_Step]:
    spans = list(spans)
    inputs = _Union((span.start_ns, span.end_ns) for span in spans if span.name in INPUT)
    channel = _Union((span.start_ns, span.end_ns) for span in spans if span.layer == "channel")
    before_ns = None
    for start_ns, end_ns in sorted(bounds):
        between_ns = max(0, start_ns - before_ns) if before_ns is not None else 0
        waited_ns = inputs.within(start_ns - between_ns, start_ns)
        sent_ns = channel.within(start_ns, end_ns)
        yield _Step(start_ns, end_ns, (waited_ns, end_ns - start_ns - sent_ns, sent_ns, between_ns - waited_ns))
        before_ns = end_ns


def _bins(found: Sequence[_Step], zero_ns: int) -> Iterator[list[float]]:
    size = max(1, -(-len(found) // MOST_BINS))
    for first in range(0, len(found), size):
        some = found[first : first + size]
        lengths = [step.ns for step in some]
        sums = [sum(step.parts[place] for step in some) for place in range(len(PARTS))]
        bounds = [first, first + len(some) - 1, some[0].start_ns - zero_ns, some[-1].end_ns - zero_ns]
        yield [*bounds, min(lengths), int(median(lengths)), max(lengths), *sums]


class _Union:
    """Union of intervals, for queries in chronological order."""

    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        self._joined: list[list[int]] = []
        for start, end in sorted(intervals):
            if self._joined and start <= self._joined[-1][1]:
                self._joined[-1][1] = max(self._joined[-1][1], end)
            else:
                self._joined.append([start, end])
        self._place = 0

    def within(self, start_ns: int, end_ns: int) -> int:
        """Return the covered time within [start_ns, end_ns). Queries must be in chronological order."""
        while self._place < len(self._joined) and self._joined[self._place][1] <= start_ns:
            self._place += 1
        total, place = 0, self._place
        while place < len(self._joined) and self._joined[place][0] < end_ns:
            total += max(0, min(end_ns, self._joined[place][1]) - max(start_ns, self._joined[place][0]))
            place += 1
        return total
