"""Normalises a lane: its spans nest, and every instant belongs to exactly one innermost span, or to none.

A lane is one sequential timeline (a thread, or an entity that logs describe, such as a YARN application). Its spans
come from several sources with different resolutions, so that they may overlap slightly. Each correction is a `Clip`.
Attribution and the trace view both use the result, so that a picture shows exactly the counted time. Pure: no clock, no
file.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlobd.schema import Clip, Span


class NestedSpan(NamedTuple):
    """A span with its bounds after normalisation; `depth` is the number of spans around it."""

    start_ns: int
    end_ns: int
    depth: int
    span: Span


class Piece(NamedTuple):
    """An interval of a lane and its innermost open span; None without an open span."""

    start_ns: int
    end_ns: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class Lane:
    """A normalised lane. `pieces` tile the window; `edges_ns` maps starts and ends to their uncertainty."""

    nested: tuple[NestedSpan, ...]
    pieces: tuple[Piece, ...]
    edges_ns: dict[int, int]
    clips: tuple[Clip, ...]

    def backwards(self, start_ns: int, end_ns: int) -> Iterator[Piece]:
        """Yield the pieces inside [start_ns, end_ns), clipped to it, latest first."""
        index = bisect_left(self.pieces, end_ns, key=lambda piece: piece.start_ns) - 1
        while index >= 0 and self.pieces[index].end_ns > start_ns:
            piece = self.pieces[index]
            yield Piece(max(piece.start_ns, start_ns), min(piece.end_ns, end_ns), piece.span)
            index -= 1

    def last_busy(self, at_ns: int) -> Piece | None:
        """Return the latest piece with an open span, clipped at `at_ns`; None if no span was open."""
        index = bisect_left(self.pieces, at_ns, key=lambda piece: piece.start_ns) - 1
        while index >= 0 and self.pieces[index].span is None:
            index -= 1  # two pieces without a span never touch, so this steps once
        return self.pieces[index]._replace(end_ns=min(self.pieces[index].end_ns, at_ns)) if index >= 0 else None

    def busy_until(self, at_ns: int) -> int | None:
        """Return the latest instant until `at_ns` at which a span was open; None if no span was open."""
        piece = self.last_busy(at_ns)
        return piece.end_ns if piece else None


def by_lane(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Group spans by lane, in the given order."""
    lanes: dict[str, list[Span]] = {}
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    return lanes


def arrange(spans: Sequence[Span], start_ns: int, end_ns: int) -> Lane:
    """Normalise the spans of one lane in the window, in O(n log n). Omits empty spans."""
    clips: list[Clip] = []
    nested = _nest(spans, _clip_to_parents(spans, start_ns, end_ns, clips), clips)
    edges: dict[int, int] = {}
    for bounds in nested:
        for edge in (bounds.start_ns, bounds.end_ns):
            edges[edge] = max(edges.get(edge, 0), bounds.span.resolution_ns)
    return Lane(tuple(nested), tuple(_innermost(nested, start_ns, end_ns)), edges, tuple(clips))


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


def _nest(spans: Sequence[Span], bounds: list[tuple[int, int, int, int]], clips: list[Clip]) -> list[NestedSpan]:
    """Resolve crossing spans in the order of their starts: the later span loses its tail, or the earlier span its
    overlap, whichever is shorter. Within their uncertainty the more precise edge stays."""
    heap = bounds  # sorted, and so already a heap
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
    return [NestedSpan(start, end, depth, spans[index]) for start, end, depth, index in placed if start < end]


def _innermost(nested: Sequence[NestedSpan], start_ns: int, end_ns: int) -> Iterator[Piece]:
    """Yield pieces that tile the window, each with its innermost open span; exact, in integers."""
    open_: list[NestedSpan] = []
    cursor = start_ns

    def until(edge_ns: int) -> Iterator[Piece]:
        nonlocal cursor
        if edge_ns > cursor:
            yield Piece(cursor, edge_ns, open_[-1].span if open_ else None)
            cursor = edge_ns

    for bounds in nested:
        while open_ and open_[-1].end_ns <= bounds.start_ns:
            yield from until(open_[-1].end_ns)
            open_.pop()
        yield from until(bounds.start_ns)
        open_.append(bounds)
    while open_:
        yield from until(open_[-1].end_ns)
        open_.pop()
    yield from until(end_ns)
