"""Normalises lanes: spans nest, and every instant of a lane belongs to exactly one innermost span, or to none.

A lane is one sequential timeline (a thread, or an entity that logs describe, such as a YARN application). Its spans
come from several sources with different resolutions, so that they may overlap slightly. Each correction is a `Clip`.
Attribution and the trace view both use the result, so that a picture shows exactly the counted time. Pure: no clock, no
file.

`Lanes` normalises all lanes together, in arrays. Only a lane whose spans contradict each other is normalised by a loop
over its spans, `arrange`.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dlobd.attribution.trace import Columns, Span
from dlobd.columns import MOST, NONE, Flags, Ints, Table, ends_of_runs, largest_of_runs, starts_of_runs
from dlobd.errors import BundleError
from dlobd.schema import Clip

MOST_NS = 2**63 - 1
"""Longest axis, in nanoseconds: 292 years of lanes, such as 1,000 executors with 64 slots for 40 hours."""

MOST_DEPTH = 1000
"""Most recorded ancestors of a span in an array; a lane with more is normalised by a loop."""


class Nested(NamedTuple):
    """Columns of the spans in the window after normalisation, by lane and start; an outer span is before its inner
    spans. `row`: place in the trace; `outer`: place in these columns of the span around it, or NONE."""

    row: Ints
    start_ns: Ints
    end_ns: Ints
    depth: Ints
    outer: Ints


class Lanes:
    """Pieces of all normalised lanes, laid end to end on one axis. Lane k has the positions from k * stride.

    at: start of each piece. The next piece begins at its end; the last piece of a lane begins at the window's end.
    owner: row of the innermost open span of each piece, or NONE.
    resolution_ns: uncertainty of the start of each piece, if a span of its lane starts or ends there.

    Raises BundleError if the axis is too long.
    """

    def __init__(self, columns: Columns, start_ns: int, end_ns: int) -> None:
        self.start_ns, self.wall_ns = start_ns, end_ns - start_ns
        self.stride = self.wall_ns + 1
        if not -MOST <= start_ns <= end_ns <= MOST or len(columns.lanes) * self.stride > MOST_NS:
            what = f"{len(columns.lanes)} lanes of {self.wall_ns / 1e9:.0f} s exceed the {MOST_NS / 1e9:.0f} s that fit"
            raise BundleError(f"The trace is too long: {what}.", "record fewer processes, or a shorter job")
        low: Ints = np.clip(columns.start_ns, start_ns, end_ns)
        high: Ints = np.maximum(np.clip(columns.end_ns, start_ns, end_ns), low)
        lost_ns: Ints = columns.end_ns - columns.start_ns - (high - low)
        depth, looping = _ancestors(columns.parent)
        children = np.flatnonzero(columns.parent != NONE)
        parents = columns.parent[children]
        leaving = children[(low[children] < low[parents]) | (high[children] > high[parents])]
        untidy = np.zeros(len(columns.lanes), np.bool_)
        untidy[columns.lane[looping | (columns.end_ns < columns.start_ns)]] = True
        untidy[columns.lane[leaving]] = True
        rows = np.flatnonzero((low < high) & ~untidy[columns.lane])
        base = columns.lane * self.stride - start_ns
        low, high = low + base, high + base
        rows = _outer_first(rows, low, high, depth)
        depths = _open_at_start(low[rows], high[rows])
        around = _around(depths)  # the place of the span around each of them, if they nest
        crossing = rows[(around != NONE) & (high[rows] > high[rows][around])]
        untidy[columns.lane[crossing]] = True
        clips = self._clips(columns, depth, lost_ns > 0, high - low, ~untidy[columns.lane])
        if untidy.any():
            rows = rows[~untidy[columns.lane[rows]]]
            parts = [(rows, _open_at_start(low[rows], high[rows]))]
            for lane in np.flatnonzero(untidy).tolist():
                own, clips[lane] = np.flatnonzero(columns.lane == lane), []
                arranged = arrange(list(columns.spans.rows(own)), start_ns, end_ns, clips[lane])
                begin_ns, until_ns, level, place = np.array(arranged, np.int64).reshape(-1, 4).T
                own = own[place]
                low[own], high[own] = begin_ns + base[own], until_ns + base[own]
                parts.append((own, level))
            rows, depths = (np.concatenate(column) for column in zip(*parts, strict=True))
            around = _around(depths)
        begins, pieces = np.arange(len(columns.lanes)) * self.stride, Table(3)
        pieces.add(np.append(begins, begins + self.wall_ns), NONE, 0)  # the start and the end of each lane have no span
        for part in _turns(rows, around, low, high, columns.resolution_ns):
            pieces.add(*part)
        self._nested = rows, low[rows], high[rows], depths
        at, owner, resolution_ns = pieces.take()
        order = np.argsort(at, kind="stable")  # of equal positions, the last table has precedence
        at = at[order]
        last = ends_of_runs(at)
        self.at, self.owner = at[last], owner[order][last]
        self.resolution_ns = largest_of_runs(at, resolution_ns[order])
        self.clips = [clip for lane in sorted(clips) for clip in clips[lane]]

    @property
    def nested(self) -> Nested:
        """The normalised spans of all lanes."""
        row, low, high, depth = self._nested
        order = np.lexsort((depth, low))
        start_ns = self.time_ns(low[order])
        return Nested(row[order], start_ns, start_ns + (high - low)[order], depth[order], _around(depth[order]))

    def position(self, lane: Ints, time_ns: Ints) -> Ints:
        """Return the positions of times; a time outside the window is before the lane, or at the window's end."""
        return lane * self.stride + np.clip(time_ns - self.start_ns, -1, self.wall_ns)

    def time_ns(self, position: Ints) -> Ints:
        """Return the times of positions."""
        return position % self.stride + self.start_ns

    def last_busy(self, lane: Ints, time_ns: Ints) -> tuple[Ints, Ints]:
        """Return the latest piece with an open span before a time, and its end, but at most the time; NONE and 0
        without an open span."""
        position = self.position(lane, time_ns)
        piece = np.searchsorted(self.at, position) - 1
        piece = np.maximum(piece - (self.owner[piece] == NONE), NONE)  # two pieces without a span never touch
        found = (piece >= 0) & (self.at[piece] >= lane * self.stride) & (self.owner[piece] != NONE)
        piece = np.where(found, piece, NONE)
        until = np.minimum(self.at[piece + 1], position)
        return piece, np.where(found, until - lane * self.stride + self.start_ns, 0)

    def _clips(self, columns: Columns, depth: Ints, cut: Flags, kept_ns: Ints, tidy: Flags) -> dict[int, list[Clip]]:
        rows = np.flatnonzero((columns.truncated | cut) & tidy)
        found: dict[int, list[Clip]] = {}
        rows = rows[np.lexsort((rows, depth[rows], columns.lane[rows]))]
        lengths_ns = columns.end_ns[rows] - columns.start_ns[rows]
        values = columns.lane[rows], columns.truncated[rows], cut[rows], lengths_ns, lengths_ns - kept_ns[rows]
        for id_, lane, truncated, is_cut, length_ns, cut_ns in zip(
            columns.spans.ids(rows), *(column.tolist() for column in values), strict=True
        ):
            own = found.setdefault(lane, [])
            if truncated:  # closed at the last evidence: the true end is unknown
                own.append(Clip("truncated", id_, length_ns))
            if is_cut:
                own.append(Clip("outside window", id_, cut_ns))
        return found


def _ancestors(parent: Ints) -> tuple[Ints, Flags]:
    """Count the recorded ancestors of each span; flag spans whose parents lead back to themselves, or are too many."""
    depth, looping = np.zeros(len(parent), np.int64), np.zeros(len(parent), np.bool_)
    rows = np.flatnonzero(parent != NONE)
    at = parent[rows]
    for _ in range(MOST_DEPTH):
        depth[rows] += 1
        above = parent[at]
        rows, at = rows[above != NONE], above[above != NONE]
        if not len(rows):
            break
    looping[rows] = True
    return depth, looping


def _outer_first(rows: Ints, low: Ints, high: Ints, depth: Ints) -> Ints:
    """Sort spans by start; of equal starts, the longest is first, then the span with fewer ancestors."""
    rows = rows[np.argsort(low[rows], kind="stable")]
    equal = low[rows[1:]] == low[rows[:-1]]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    some = rows[tied]
    rows[tied] = some[np.lexsort((some, depth[some], -high[some], low[some]))]
    return rows


def _open_at_start(low: Ints, high: Ints) -> Ints:
    """Count the spans that are open at the start of each of the sorted spans: those before it that have not ended."""
    return np.arange(len(low)) - np.searchsorted(np.sort(high, kind="stable"), low, "right")


def _around(level: Ints) -> Ints:
    """Return for each element the last element before it that is one level higher."""
    around = np.full(len(level), NONE)
    order = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[order], np.arange(level.max(initial=-1) + 2))
    for outer, inner, end in zip(bounds[:-2], bounds[1:-1], bounds[2:], strict=True):
        parents, children = order[outer:inner], order[inner:end]
        around[children] = parents[np.searchsorted(parents, children) - 1]
    return around


def _turns(rows: Ints, around: Ints, low: Ints, high: Ints, resolution_ns: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the positions at which the innermost span changes, with that span and the uncertainty: at ends, then at
    starts, because a span that starts where another ends is open there."""
    begin, end = low[rows], high[rows]
    by_end = np.argsort(end, kind="stable")
    outermost = by_end[starts_of_runs(end[by_end])]
    outside = np.where(around[outermost] != NONE, rows[around[outermost]], NONE) if len(rows) else rows
    yield end[outermost], outside, largest_of_runs(end[by_end], resolution_ns[rows[by_end]])
    innermost = np.flatnonzero(ends_of_runs(begin))
    yield begin[innermost], rows[innermost], largest_of_runs(begin, resolution_ns[rows])


def arrange(spans: Sequence[Span], start_ns: int, end_ns: int, clips: list[Clip]) -> list[tuple[int, int, int, int]]:
    """Normalise the spans of one lane in the window, in O(n log n), and add the corrections to `clips`.

    Returns (start, end, number of spans around it, index) of each span that is not empty, by start. Resolves crossing
    spans in the order of their starts: the later span loses its tail, or the earlier span its overlap, whichever is
    shorter. Within their uncertainty the more precise edge stays.
    """
    heap = _clip_to_parents(spans, start_ns, end_ns, clips)  # sorted, and so already a heap
    placed: list[list[int]] = []  # [start, end, depth, index]; an end may still move while the span is open
    open_: list[list[int]] = []
    while heap:
        start, negative_end, depth, index = heapq.heappop(heap)
        end = -negative_end
        while open_ and open_[-1][1] <= start:
            open_.pop()
        while open_ and open_[-1][1] < end:
            earlier = open_[-1]
            overlap, tail = earlier[1] - start, end - earlier[1]
            kind = _kind(min(overlap, tail), spans[index], spans[earlier[3]])
            if tail <= overlap:
                clips.append(Clip(kind, spans[index].id, tail))
                end = earlier[1]
            elif kind == "crossing" and spans[earlier[3]].resolution_ns <= spans[index].resolution_ns:
                clips.append(Clip(kind, spans[index].id, overlap))
                # other spans may begin before its new start: put it back
                heapq.heappush(heap, (earlier[1], -end, depth, index))
                break
            else:
                clips.append(Clip(kind, spans[earlier[3]].id, overlap))
                earlier[1] = start
                open_.pop()
        else:
            placed.append([start, end, len(open_), index])
            open_.append(placed[-1])
    return [(start, end, depth, index) for start, end, depth, index in placed if start < end]


def _clip_to_parents(
    spans: Sequence[Span], start_ns: int, end_ns: int, clips: list[Clip]
) -> list[tuple[int, int, int, int]]:
    """Clip each span to the window and to its recorded parent. Returns (start, -end, depth, index), sorted."""
    first = {span.id: index for index, span in reversed(list(enumerate(spans)))}
    depths = _depths(spans, first)
    bounds: dict[int, tuple[int, int]] = {}
    for index in sorted(range(len(spans)), key=depths.__getitem__):  # parents before their children
        span = spans[index]
        if span.end_ns < span.start_ns:
            clips.append(Clip(_kind(span.start_ns - span.end_ns, span, span), span.id, span.start_ns - span.end_ns))
            continue
        if span.truncated:  # closed at the last evidence: the true end is unknown
            clips.append(Clip("truncated", span.id, span.end_ns - span.start_ns))
        low, high = _cut((span.start_ns, span.end_ns), (start_ns, end_ns), "outside window", span, clips)
        parent = first.get(span.parent) if span.parent is not None and depths[index] else None
        if parent is not None and parent in bounds:
            outside = (high - low) - max(0, min(high, bounds[parent][1]) - max(low, bounds[parent][0]))
            low, high = _cut((low, high), bounds[parent], _kind(outside, span, spans[parent]), span, clips)
        bounds[index] = low, high
    return sorted((low, -high, depths[index], index) for index, (low, high) in bounds.items() if low < high)


def _cut(inner: tuple[int, int], outer: tuple[int, int], kind: str, span: Span, clips: list[Clip]) -> tuple[int, int]:
    low = min(max(inner[0], outer[0]), outer[1])
    high = max(min(inner[1], outer[1]), low)
    lost = (inner[1] - inner[0]) - (high - low)
    if lost:
        clips.append(Clip(kind, span.id, lost))
    return low, high


def _kind(cut_ns: int, one: Span, other: Span) -> str:
    """Return "crossing" if two spans cross by at most their uncertainty, else "inconsistent"."""
    return "crossing" if cut_ns <= one.resolution_ns + other.resolution_ns else "inconsistent"


def _depths(spans: Sequence[Span], first: dict[str, int]) -> list[int]:
    """Count the recorded ancestors of each span in this lane. Ignores a parent that leads back to its child."""
    depths = [-1] * len(spans)
    for index in range(len(spans)):
        path: list[int] = []
        at: int | None = index
        while at is not None and depths[at] < 0:
            depths[at] = 0  # marks the span as visited, so that a cycle of parents ends
            path.append(at)
            parent = spans[at].parent
            at = first.get(parent) if parent is not None else None
        base = depths[at] + 1 if at is not None and at not in path else 0
        for step, member in enumerate(reversed(path)):
            depths[member] = base + step
    return depths
