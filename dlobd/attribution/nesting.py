"""Normalises lanes: spans nest, and every instant of a lane belongs to exactly one innermost span, or to none.

A lane is one sequential timeline (a thread, or an entity that logs describe, such as a YARN application). Its spans
come from several sources with different resolutions, so that they may overlap slightly. Each correction is a `Clip`.
Attribution and the trace view both use the result, so that a picture shows exactly the counted time. Pure: no clock, no
file.

1. A span is clipped to the window, and then to its recorded parent.
2. Spans that cross are resolved in the order of their starts: the later span loses its tail, or the earlier span its
   overlap, whichever is shorter. Within their uncertainty the more precise edge stays.

`Lanes` normalises all lanes together, in arrays. Only the lanes whose spans cross take a loop over their spans.
"""

import heapq
from typing import NamedTuple

import numpy as np

from dlobd.attribution.trace import Columns
from dlobd.columns import MOST, NONE, Flags, Ints, Table, ends_of_runs, starts_of_runs
from dlobd.errors import BundleError
from dlobd.schema import Clip

MOST_NS = 2**63 - 1
"""Longest axis, in nanoseconds: 292 years of lanes, such as 1,000 executors with 64 slots for 40 hours."""

CLIP_KINDS = ("truncated", "outside window", "crossing", "inconsistent")
"""Kinds of corrections. Two spans are inconsistent if they contradict each other by more than their uncertainty."""

TRUNCATED, OUTSIDE, CROSSING, INCONSISTENT = range(len(CLIP_KINDS))


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
        base, depth, parent = columns.lane * self.stride - start_ns, *_ancestors(columns.parent)
        low: Ints = np.clip(columns.start_ns, start_ns, end_ns) + base
        high: Ints = np.maximum(np.clip(columns.end_ns, start_ns, end_ns) + base, low)
        clips, in_window_ns = Table(3), high - low
        _clip_to_parents(parent, columns.end_ns < columns.start_ns, low, high)
        _add_clips(clips, columns, parent, depth, in_window_ns, high - low)
        rows = _outer_first(np.flatnonzero(low < high), low, high, depth)
        depths = _open_at_start(low[rows], high[rows])
        around = _around(depths)  # the place of the span around each of them, if they nest
        crossing = (around != NONE) & (high[rows] > high[rows][around])
        if crossing.any():
            untidy = np.isin(columns.lane[rows], columns.lane[rows[crossing]])
            placed = _uncrossed(rows[untidy], low, high, depth, columns.resolution_ns, clips)
            rows = np.append(rows[~untidy], placed)
            rows = rows[np.argsort(low[rows], kind="stable")]
            depths = _open_at_start(low[rows], high[rows])
            around = _around(depths)
        self._nested = rows, low[rows], high[rows], depths
        # of equal positions the last piece has precedence: of ends the outermost, then of starts the innermost
        begins, pieces, inner_first = np.arange(len(columns.lanes)) * self.stride, Table(3), rows[::-1]
        pieces.add(np.append(begins, begins + self.wall_ns), NONE, 0)  # the start and the end of each lane have no span
        pieces.add(high[inner_first], np.append(rows, NONE)[around][::-1], columns.resolution_ns[inner_first])
        pieces.add(low[rows], rows, columns.resolution_ns[rows])
        at, owner, resolution_ns = pieces.take()
        order = np.argsort(at, kind="stable")
        at = at[order]
        last = ends_of_runs(at)
        self.at, self.owner = at[last], owner[order][last]
        self.resolution_ns = np.maximum.reduceat(resolution_ns[order], starts_of_runs(at))
        row, kind, lost_ns = clips.take()
        order = np.argsort(columns.lane[row], kind="stable")
        found = kind[order].tolist(), columns.spans.ids(row[order]), lost_ns[order].tolist()
        self.clips = [Clip(CLIP_KINDS[number], id_, ns) for number, id_, ns in zip(*found, strict=True)]

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


def _ancestors(parent: Ints) -> tuple[Ints, Ints]:
    """Count the recorded ancestors of each span. Also returns the parents, without those that lead back to their
    children."""
    above = np.append(parent, NONE)  # the last element stands for a missing parent
    depth = (above != NONE).astype(np.int64)
    for _ in range(len(parent).bit_length()):  # each round doubles the distance
        if not (above != NONE).any():
            break
        depth, above = depth + depth[above], above[above]
    circular = above[above != NONE]
    if len(circular):
        parent = parent.copy()
        parent[circular] = NONE
        return _ancestors(parent)
    return depth[:-1], parent


def _clip_to_parents(parent: Ints, backwards: Flags, low: Ints, high: Ints) -> None:
    """Clip spans to their parents, in place (rule 1). A parent that ends before its start clips nothing."""
    children = np.flatnonzero((parent != NONE) & ~backwards[parent])
    around = parent[children]
    while (leaving := (low[children] < low[around]) | (high[children] > high[around])).any():
        rows, outer = children[leaving], around[leaving]
        low[rows] = np.clip(low[rows], low[outer], high[outer])
        high[rows] = np.clip(high[rows], low[rows], high[outer])


def _add_clips(
    clips: Table, columns: Columns, parent: Ints, depth: Ints, in_window_ns: Ints, in_parent_ns: Ints
) -> None:
    """Add the corrections by rule 1, parents before their children: spans, kinds and lost times."""
    length_ns, uncertain_ns = columns.end_ns - columns.start_ns, columns.resolution_ns
    cut_ns = np.where(length_ns < 0, -length_ns, in_window_ns - in_parent_ns)
    other = np.where((length_ns < 0) | (parent == NONE), np.arange(len(parent)), parent)
    kind = np.where(cut_ns <= uncertain_ns + uncertain_ns[other], CROSSING, INCONSISTENT)
    found, row = Table(3), np.arange(len(parent))
    # closed at the last evidence: the true end is unknown
    found.add(row, TRUNCATED, length_ns, where=columns.truncated & (length_ns >= 0))
    found.add(row, OUTSIDE, length_ns - in_window_ns, where=length_ns > in_window_ns)
    found.add(row, kind, cut_ns, where=cut_ns > 0)
    row, kind, cut_ns = found.take()
    order = np.lexsort((kind, row, depth[row]))
    clips.add(row[order], kind[order], cut_ns[order])


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


def _uncrossed(rows: Ints, low: Ints, high: Ints, depth: Ints, resolution_ns: Ints, clips: Table) -> Ints:
    """Resolve crossing spans, which are sorted, in O(n log n): correct their bounds in place (rule 2), and add the
    corrections. Returns the spans that are not empty, by start; an outer span is before its inner spans."""
    columns = low[rows], -high[rows], depth[rows], rows, resolution_ns[rows]
    heap = list(zip(*(column.tolist() for column in columns), strict=True))  # sorted, and so already a heap
    placed: list[list[int]] = []  # [start, end, row, resolution]; an end may still move while the span is open
    open_: list[list[int]] = []
    found: list[tuple[int, int, int]] = []
    while heap:
        start, negative_end, ancestors, row, uncertain_ns = heapq.heappop(heap)
        end = -negative_end
        while open_ and open_[-1][1] <= start:
            open_.pop()
        while open_ and open_[-1][1] < end:
            earlier = open_[-1]
            overlap, tail = earlier[1] - start, end - earlier[1]
            kind = CROSSING if min(overlap, tail) <= uncertain_ns + earlier[3] else INCONSISTENT
            if tail <= overlap:
                found.append((row, kind, tail))
                end = earlier[1]
            elif kind == CROSSING and earlier[3] <= uncertain_ns:
                found.append((row, kind, overlap))
                # other spans may begin before its new start: put it back
                heapq.heappush(heap, (earlier[1], -end, ancestors, row, uncertain_ns))
                break
            else:
                found.append((earlier[2], kind, overlap))
                earlier[1] = start
                open_.pop()
        else:
            placed.append([start, end, row, uncertain_ns])
            open_.append(placed[-1])
    clips.add(*np.array(found).T)
    begins, ends, row, _ = np.array(placed).T
    low[row], high[row] = begins, ends
    kept: Ints = row[begins < ends]
    return kept
