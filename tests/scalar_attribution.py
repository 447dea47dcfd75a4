"""Reference for `dlobd.attribution.attribute`: the same rules as a walk over single spans, from the window's end to its
start."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from dlobd.attribution.attribute import Quality, quality
from dlobd.attribution.trace import Attribution, Segment, Span, Trace
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import MAIN_LANE, Clip, Interval, LayerTime

Kind = Literal["span", "cause", "unexplained", "unattributed"]


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


class Release(NamedTuple):
    """A wait and its release `by` a span of another lane, which ended, or entered the collective last, at `at_ns`."""

    wait: NestedSpan
    by: NestedSpan
    at_ns: int


def by_lane(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Group spans by lane, in the given order."""
    lanes: dict[str, list[Span]] = {}
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    return lanes


def arrange(spans: Sequence[Span], start_ns: int, end_ns: int) -> Lane:
    """Normalise the spans of one lane in the window. Omits empty spans."""
    clips: list[Clip] = []
    arranged = normalised(spans, start_ns, end_ns, clips)
    nested = [NestedSpan(start, end, depth, spans[index]) for start, end, depth, index in arranged]
    edges: dict[int, int] = {}
    for bounds in nested:
        for edge in (bounds.start_ns, bounds.end_ns):
            edges[edge] = max(edges.get(edge, 0), bounds.span.resolution_ns)
    return Lane(tuple(nested), tuple(innermost(nested, start_ns, end_ns)), edges, tuple(clips))


def normalised(spans: Sequence[Span], start_ns: int, end_ns: int, clips: list[Clip]) -> list[tuple[int, int, int, int]]:
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


def innermost(nested: Sequence[NestedSpan], start_ns: int, end_ns: int) -> Iterator[Piece]:
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


def backwards(lane: Lane, start_ns: int, end_ns: int) -> Iterator[Piece]:
    """Yield the pieces inside [start_ns, end_ns), clipped to it, latest first."""
    index = bisect_left(lane.pieces, end_ns, key=lambda piece: piece.start_ns) - 1
    while index >= 0 and lane.pieces[index].end_ns > start_ns:
        piece = lane.pieces[index]
        yield Piece(max(piece.start_ns, start_ns), min(piece.end_ns, end_ns), piece.span)
        index -= 1


def last_busy(lane: Lane, at_ns: int) -> Piece | None:
    """Return the latest piece with an open span, clipped at `at_ns`; None if no span was open."""
    index = bisect_left(lane.pieces, at_ns, key=lambda piece: piece.start_ns) - 1
    while index >= 0 and lane.pieces[index].span is None:
        index -= 1  # two pieces without a span never touch, so this steps once
    return lane.pieces[index]._replace(end_ns=min(lane.pieces[index].end_ns, at_ns)) if index >= 0 else None


def busy_until(lane: Lane, at_ns: int) -> int | None:
    """Return the latest instant until `at_ns` at which a span was open; None if no span was open."""
    piece = last_busy(lane, at_ns)
    return piece.end_ns if piece else None


def arranged(trace: Trace) -> dict[str, Lane]:
    """Return the normalised lanes of a run over its window, always with the main lane."""
    lanes = {MAIN_LANE: arrange((), trace.start_ns, trace.end_ns)}
    for name, spans in by_lane(trace.spans).items():
        lanes[name] = arrange(spans, trace.start_ns, trace.end_ns)
    return lanes


def attribute(trace: Trace) -> Attribution:
    """Split the wall time by layer."""
    lanes = arranged(trace)
    attributor = Attributor(trace, lanes)
    if trace.wall_ns:
        attributor.resolve(MAIN_LANE, trace.start_ns, trace.end_ns, None, (MAIN_LANE,))
    segments = attributor.segments[::-1]
    clips = [clip for lane in lanes.values() for clip in lane.clips] + attributor.clips + [*trace.clips]
    return _sum(trace, segments, attributor.edges_ns, clips)


def releases(trace: Trace, lanes: dict[str, Lane]) -> list[Release]:
    """Return each wait that a span of another lane released, by the rules of the attribution, in `arranged` lanes."""
    attributor = Attributor(trace, lanes)
    placed = {(nested.span.lane, nested.span.id): nested for lane in lanes.values() for nested in lane.nested}
    found = []
    for nested in placed.values():
        span, at_ns = attributor.releasing(nested) or (None, 0)
        by = placed.get((span.lane, span.id)) if span else None
        if by:
            # normalisation may have moved the edges of the span
            at_ns = min(max(at_ns, by.start_ns), by.end_ns)
            if by.start_ns < nested.end_ns and at_ns <= nested.end_ns:
                found.append(Release(nested, by, at_ns))
    return found


class Attributor:
    """Walk over the window from its end to its start, because a named cause takes the last part of a wait."""

    def __init__(self, trace: Trace, lanes: dict[str, Lane]) -> None:
        self.lanes = lanes
        self._end_ns = trace.end_ns
        self.segments: list[Segment] = []
        self.clips: list[Clip] = []
        self.edges_ns: dict[int, int] = {}
        self._cause_left_ns: dict[str, int] = {}
        self._last_to_enter = self._collectives(trace.spans)

    def resolve(self, lane: str, start_ns: int, end_ns: int, waiting: Span | None, chain: tuple[str, ...]) -> None:
        """Assign every instant of [start, end) to a layer by the work of `lane`. `waiting`: the span that waits for
        this lane."""
        for start, end, span in backwards(self.lanes[lane], start_ns, end_ns):
            for edge in (start, end):
                self._edge(edge, self.lanes[lane].edges_ns.get(edge, 0))
            if span is None:
                # Rules 4 and 5: no span is open here, so the time goes back to the waiting lane.
                if waiting is None:
                    self._emit(start, end, UNATTRIBUTED, None, "unattributed", chain)
                else:
                    self._gap(waiting, start, end, chain[:-1])
            elif span.rendezvous:
                # Rule 3. From the last entry on, the collective itself runs: its own layer's time.
                last = self._last_to_enter[span.id]
                entered = min(max(last.start_ns, start), end)
                self._own(span, entered, end, chain)
                self._delegate(span, last.lane, start, entered, last.resolution_ns, chain)
            elif span.waits_for:
                # Rule 2. After its release only its cause explains a wait.
                released = end if span.released_ns is None else min(max(span.released_ns, start), end)
                self._gap(span, released, end, chain)
                self._delegate(span, self._releasing_lane(span), start, released, span.resolution_ns, chain)
            elif span.cause:
                # A sleep or poll that waits for no lane: its period is named, the rest is own time.
                self._gap(span, start, end, chain, rest="span")
            else:
                self._own(span, start, end, chain)  # Rule 1.

    def _delegate(
        self, span: Span, lane: str | None, start_ns: int, end_ns: int, resolution_ns: int, chain: tuple[str, ...]
    ) -> None:
        """Replace [start_ns, end_ns) of a waiting span by the work of `lane`. Its end has `resolution_ns`."""
        if start_ns >= end_ns:
            return
        self._edge(end_ns, resolution_ns)
        if lane is None:
            self._gap(span, start_ns, end_ns, chain)
        elif lane in chain:
            # The wait leads back to a lane that itself waits for it: a cycle, counted as a clip.
            self.clips.append(Clip("cycle", span.id, end_ns - start_ns))
            self._gap(span, start_ns, end_ns, chain)
        else:
            self.resolve(lane, start_ns, end_ns, span, (*chain, lane))

    def _releasing_lane(self, span: Span) -> str | None:
        """Return the lane that was busy last before the release."""
        release_ns = span.end_ns if span.released_ns is None else span.released_ns
        busy: list[tuple[int, int, str]] = []
        for name in span.waits_for:
            lane = self.lanes.get(name)
            until_ns = busy_until(lane, release_ns) if lane else None
            if lane and until_ns is not None:
                busy.append((until_ns, busy_until(lane, self._end_ns) or until_ns, name))
        return max(busy)[2] if busy else None

    def releasing(self, nested: NestedSpan) -> tuple[Span, int] | None:
        """Return the span of another lane that released a wait, or entered its collective last, and the time."""
        span = nested.span
        if span.rendezvous:
            last = self._last_to_enter[span.id]
            return (last, last.start_ns) if last.lane != span.lane else None
        name = self._releasing_lane(span) if span.waits_for else None
        if name is None or name == span.lane:
            return None
        piece = last_busy(self.lanes[name], nested.end_ns if span.released_ns is None else span.released_ns)
        return (piece.span, piece.end_ns) if piece and piece.span else None

    def _gap(self, span: Span, start_ns: int, end_ns: int, chain: tuple[str, ...], rest: Kind = "unexplained") -> None:
        """Emit time of `span` that no other lane covers. Its cause takes at most the rest of its period."""
        if span.unknown:
            self._own(span, start_ns, end_ns, chain)
            return
        left = self._cause_left_ns.get(span.id, span.cause_period_ns if span.cause else 0)
        named = max(0, min(left, end_ns - start_ns))
        self._cause_left_ns[span.id] = left - named
        if 0 < named < end_ns - start_ns:
            self._edge(end_ns - named, span.resolution_ns)
        self._emit(end_ns - named, end_ns, span.layer, span, "cause", chain)
        self._emit(start_ns, end_ns - named, span.layer, span, rest, chain)

    def _own(self, span: Span, start_ns: int, end_ns: int, chain: tuple[str, ...]) -> None:
        if span.unknown:
            self._emit(start_ns, end_ns, UNATTRIBUTED, None, "unattributed", chain)
        else:
            self._emit(start_ns, end_ns, span.layer, span, "span", chain)

    def _emit(
        self, start_ns: int, end_ns: int, layer: str, span: Span | None, kind: Kind, chain: tuple[str, ...]
    ) -> None:
        if start_ns >= end_ns:
            return
        later = self.segments[-1] if self.segments else None
        if later and later.span is span and later.kind == kind and later.chain == chain:
            self.segments.pop()
            end_ns = later.end_ns
        self.segments.append(Segment(start_ns, end_ns, layer, span, kind, chain))

    def _edge(self, at_ns: int, resolution_ns: int) -> None:
        """Store the uncertainty of a boundary: the larger uncertainty of its two edges."""
        self.edges_ns[at_ns] = max(self.edges_ns.get(at_ns, 0), resolution_ns)

    def _collectives(self, spans: Iterable[Span]) -> dict[str, Span]:
        """Map the ID of each member of a collective to the last member that starts before its end."""
        groups: dict[str, list[Span]] = defaultdict(list)
        for span in spans:
            if span.rendezvous:
                groups[span.rendezvous].append(span)
        releasing: dict[str, Span] = {}
        for members in groups.values():
            members.sort(key=lambda member: member.start_ns)
            starts = [member.start_ns for member in members]
            for member in members:
                releasing[member.id] = members[max(0, bisect_left(starts, member.end_ns) - 1)]
                late_ns = starts[-1] - member.end_ns
                if late_ns > members[-1].resolution_ns + member.resolution_ns and not member.truncated:
                    self.clips.append(Clip("inconsistent", member.id, late_ns))
        return releasing


def _sum(trace: Trace, segments: list[Segment], edges_ns: dict[int, int], clips: Sequence[Clip]) -> Attribution:
    total: Counter[str] = Counter()
    known: dict[str, Counter[Quality]] = defaultdict(Counter)
    uncertain: Counter[str] = Counter()
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    periods: dict[str, Literal["read", "default"] | None] = {}  # source of each period; None for an unregistered cause
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for segment in segments:
        length_ns = segment.end_ns - segment.start_ns
        total[segment.layer] += length_ns
        known[segment.layer][quality(segment)] += length_ns
        if segment.span:
            names[segment.layer][segment.span.name] += length_ns
            if segment.kind == "cause":
                causes[segment.layer][segment.span.cause] += length_ns
                row = segment.span.cause_kind
                periods[segment.span.cause] = None if row is None else "read" if row.period_is_read else "default"
    # An uncertain boundary moves time between two layers: both are uncertain by it.
    for left, right in pairwise(segments):
        if left.layer != right.layer:
            for layer in (left.layer, right.layer):
                uncertain[layer] += edges_ns.get(right.start_ns, 0)
    low = {layer: total[layer] - uncertain[layer] for layer in LAYERS}
    high = {layer: total[layer] + uncertain[layer] for layer in LAYERS}
    # `hi_ns` is the upper bound of a layer's time inside spans of another layer.
    for interval, overlap_ns in _overlaps(trace.intervals, segments):
        low[interval.inside] -= min(interval.hi_ns, overlap_ns)
        high[interval.layer] += min(interval.hi_ns, overlap_ns)
    # All unattributed time may belong to a layer whose source is missing.
    for lacking in trace.not_measured:
        if lacking.inside == UNATTRIBUTED:
            high[lacking.layer] += total[UNATTRIBUTED]
    # a layer that worked without delaying the main lane has 0; a layer without work has no row
    taking_part = {interval.layer for interval in trace.intervals} | {
        span.layer for span in trace.spans if span.start_ns < trace.end_ns and span.end_ns > trace.start_ns
    }
    rows = tuple(
        LayerTime(
            layer,
            LAYERS[layer].group,
            total[layer],
            known[layer]["unexplained"],
            max(0, low[layer]),
            min(trace.wall_ns, high[layer]),
            known[layer]["measured"],
            known[layer]["between marks"],
            known[layer]["named wait"],
            tuple((cause, ns, periods[cause]) for cause, ns in _largest_first(causes[layer])),
            _largest_first(names[layer]),
        )
        for layer in LAYERS
        if total[layer] or layer in taking_part
    )
    merged: Counter[tuple[str, str]] = Counter()
    for clip in clips:
        merged[clip.kind, clip.span] += clip.ns
    return Attribution(
        trace.wall_ns,
        rows,
        total[UNATTRIBUTED],
        trace.not_measured,
        trace.intervals,
        tuple(Clip(kind, span, ns) for (kind, span), ns in merged.items()),
        tuple(segments),
    )


def _overlaps(intervals: Sequence[Interval], segments: Iterable[Segment]) -> Iterable[tuple[Interval, int]]:
    wanted = {(interval.lane, interval.inside) for interval in intervals}
    own: dict[tuple[str, str], list[Segment]] = defaultdict(list)
    for segment in segments:
        if segment.kind == "span" and (segment.chain[-1], segment.layer) in wanted:
            own[segment.chain[-1], segment.layer].append(segment)
    for interval in intervals:
        candidates = own[interval.lane, interval.inside]
        index = max(0, bisect_left(candidates, interval.start_ns, key=lambda segment: segment.end_ns))
        overlap_ns = 0
        while index < len(candidates) and candidates[index].start_ns < interval.end_ns:
            segment = candidates[index]
            overlap_ns += max(0, min(segment.end_ns, interval.end_ns) - max(segment.start_ns, interval.start_ns))
            index += 1
        yield interval, overlap_ns


def _largest_first(sums: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sums.items(), key=lambda item: (-item[1], item[0])))
