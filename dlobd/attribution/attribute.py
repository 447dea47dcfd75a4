"""Splits the wall time of a trace by layer, exactly.

The wall time of a run is the window of its main lane. `_Walk` assigns each piece of it to one layer, by these rules. It
resolves all windows of one depth of waits together, in arrays: first that of the main lane, then those of the lanes for
which it waits, and so on.

1. An instant belongs to the innermost span that is open in the lane.
2. A wait is replaced by the work of the lane that releases it; waits there are replaced in turn.
3. A collective is released by the last rank that enters it: until then, the work of that rank counts.
4. Time that the releasing lane does not cover is a gap: `unexplained` in the layer that waits, except for at most the
   period of a named cause (heartbeat, poll, sleep). So delegation cannot hide a gap.
5. Time without an open span in the main lane is `unattributed`. So is the own time of a span, and a gap in it, if the
   evidence for its owner is missing.

The own time of a span is `measured` if start and end of one call or phase were observed. Else it is `between marks`:
the time between two marks of different calls, or of a whole process, task or thread.

All numbers are integers of nanoseconds; the parts tile the window, so that they sum to it without a remainder. Pure: no
clock, no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from dlobd.attribution.nesting import Lanes, Nested
from dlobd.attribution.trace import (
    NUMBER_OF_LAYER,
    SEGMENT_KINDS,
    SEGMENT_LAYERS,
    Attribution,
    Columns,
    Segment,
    Segments,
    Span,
    Trace,
)
from dlobd.columns import NONE, Covered, Ints, Numbers, Table, ends_of_runs, ints, places, starts_of_runs
from dlobd.errors import BundleError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import Clip, Interval, LayerTime
from dlobd.spans import BETWEEN_MARKS, OwnQuality, cause_of

Quality = Literal["measured", "between marks", "named wait", "unexplained", "unattributed"]

OWN, CAUSE, UNEXPLAINED, NO_SPAN = range(len(SEGMENT_KINDS))
BETWEEN = len(SEGMENT_KINDS)
"""Number of own time between marks."""


def attribute(trace: Trace) -> Attribution:
    """Split the wall time by layer. Raises BundleError for an unknown layer, or a window that ends before it starts."""
    _check(trace)
    walk = _Walk(trace)
    return _summed(trace, walk, walk.segments())


def nested(trace: Trace) -> Nested:
    """Return the normalised spans of all lanes over the window."""
    return Lanes(Columns(trace.spans), trace.start_ns, trace.end_ns).nested


def releases(trace: Trace, spans: Nested) -> Releases:
    """Return the waits that a span of another lane released, by the rules of the attribution, among `nested` spans."""
    walk = _Walk(trace)
    columns, place = walk.columns, np.full(len(trace.spans), NONE)
    place[spans.row] = np.arange(len(spans.row))
    end_ns = np.append(spans.end_ns, 0)[place]
    rows, by, at_ns = walk.released(np.where(columns.is_released, columns.released_ns, end_ns))
    some = (place[rows] != NONE) & (place[by] != NONE)
    wait, end, at_ns = place[rows[some]], place[by[some]], at_ns[some]
    # normalisation may have moved the edges of the span
    at_ns = np.minimum(np.maximum(at_ns, spans.start_ns[end]), spans.end_ns[end])
    some = np.flatnonzero((spans.start_ns[end] < spans.end_ns[wait]) & (at_ns <= spans.end_ns[wait]))
    order = some[np.argsort(wait[some], kind="stable")]
    return Releases(wait[order], end[order], at_ns[order])


def critical_path(attribution: Attribution) -> Segments:
    """Return the attributed wall time from start to end, with neighbours of equal lane, layer, kind and name joined."""
    segments = attribution.segments
    names = Numbers[str]()
    name = np.append(ints([names[kind.text(detail)] for kind, detail in segments.spans.kinds]), NONE)
    span = np.where(segments.row == NONE, NONE, np.append(segments.spans.kind, 0)[segments.row])
    return segments.joined(segments.lane, segments.layer, segments.kind, name[span])


class Releases(NamedTuple):
    """Columns of releases, with places of `Nested`: a wait, and the span of another lane that ended, or entered the
    collective last, at `at_ns`."""

    wait: Ints
    by: Ints
    at_ns: Ints


class _Walk:
    """Resolution of the window. A chain is the path of lanes from the main lane to the lane of a window."""

    def __init__(self, trace: Trace) -> None:
        self.columns = Columns(trace.spans)
        self.lanes = Lanes(self.columns, trace.start_ns, trace.end_ns)
        self._chains = Numbers[tuple[int, ...]]({(0,): 0})
        self._own, self._gaps = Table(4), Table(5)  # span, start, end, chain; and the kind of the rest
        self._edges, self._cycles, self._windows = Table(2), Table(3), Table(4)
        self._last_to_enter, self._late = _collectives(self.columns)
        self._releasing = self._releasing_lanes()

    def segments(self) -> Segments:
        """Assign every instant of the window to a layer."""
        window = [np.array([number]) for number in (0, self.lanes.wall_ns, NONE, 0)]
        while len(window[0]):
            self._resolve(*window)
            window, self._windows = self._windows.take(), Table(4)
        row, start, end, chain = self._own.take()
        kind = np.where(row == NONE, NO_SPAN, OWN)
        parts = [(start, end, row, kind, chain), *self._causes()]
        start, end, row, kind, chain = (np.concatenate(column) for column in zip(*parts, strict=True))
        unknown = (kind == OWN) & np.append(self.columns.unknown, False)[row]
        row[unknown], kind[unknown] = NONE, NO_SPAN  # rule 5
        some = np.flatnonzero(start < end)
        order, lanes = some[np.argsort(start[some], kind="stable")], self.columns.lanes
        start, end, row, kind, chain = (column[order] for column in (start, end, row, kind, chain))
        layer = np.append(self.columns.layer, SEGMENT_LAYERS.index(UNATTRIBUTED))[row]
        chains = [tuple(lanes[lane] for lane in path) for path in self._chains]
        return Segments(start, end, layer, row, kind, chain, self.columns.spans, chains).joined(row, kind, chain)

    def clips(self) -> list[Clip]:
        """Return the corrections: in lanes, of members that left their collective too early, and of cycles of waits."""
        end, row, ns = self._cycles.take()
        order = np.argsort(-end, kind="stable")
        cycles = zip(self.columns.spans.ids(row[order]), ns[order].tolist(), strict=True)
        return [*self.lanes.clips, *self._late, *(Clip("cycle", *cycle) for cycle in cycles)]

    def edges_ns(self) -> tuple[Ints, Ints]:
        """Return the times of boundaries, and their uncertainty: the larger uncertainty of both edges."""
        at, resolution_ns = self._edges.take()
        order = np.argsort(at, kind="stable")
        at = at[order]
        first = starts_of_runs(at)
        return at[first], np.maximum.reduceat(resolution_ns[order], first)

    def released(self, release_ns: Ints) -> tuple[Ints, Ints, Ints]:
        """Return rows of waits, the row of the span of another lane that released each, and the time of the release."""
        columns = self.columns
        last = self._last_to_enter[columns.members]
        waits = np.flatnonzero((columns.group == NONE) & (self._releasing != NONE))
        piece, until_ns = self.lanes.last_busy(self._releasing[waits], release_ns[waits])
        by = np.where(piece != NONE, self.lanes.owner[piece], NONE)
        rows, by = np.append(columns.members, waits), np.append(last, by)
        at_ns = np.append(columns.start_ns[last], until_ns)
        other = (by != NONE) & (columns.lane[rows] != columns.lane[by])
        return rows[other], by[other], at_ns[other]

    def _resolve(self, begin: Ints, end: Ints, waiting: Ints, chain: Ints) -> None:
        """Assign every instant of windows, which are positions of lanes. `waiting`: the spans that wait for these
        lanes."""
        lanes, columns = self.lanes, self.columns
        first = np.searchsorted(lanes.at, begin, "right") - 1
        sizes = np.searchsorted(lanes.at, end) - first
        window = np.repeat(np.arange(len(begin)), sizes)
        piece = places(first, sizes)
        low, high = np.maximum(lanes.at[piece], begin[window]), np.minimum(lanes.at[piece + 1], end[window])
        start, stop = lanes.time_ns(low), lanes.time_ns(high)
        self._edges.add(start, lanes.resolution_ns[piece], where=low == lanes.at[piece])
        self._edges.add(stop, lanes.resolution_ns[piece + 1], where=high == lanes.at[piece + 1])
        row, waiting, chain = lanes.owner[piece], waiting[window], chain[window]
        # Rules 4 and 5: where no span is open, the time goes back to the waiting lane.
        idle = row == NONE
        self._own.add(row, start, stop, chain, where=idle & (waiting == NONE))
        outer = np.array([self._chains.get(path[:-1], NONE) for path in self._chains])[chain]
        self._gaps.add(waiting, start, stop, outer, UNEXPLAINED, where=idle & (waiting != NONE))
        row, start, stop, chain = (column[~idle] for column in (row, start, stop, chain))
        # Rule 3. From the last entry on, the collective itself runs: its own layer's time.
        member = columns.group[row] != NONE
        at, begun, ended, path = (column[member] for column in (row, start, stop, chain))
        last = self._last_to_enter[at]
        entered = np.minimum(np.maximum(columns.start_ns[last], begun), ended)
        self._own.add(at, entered, ended, path)
        self._delegate(at, columns.lane[last], begun, entered, columns.resolution_ns[last], path)
        # Rule 2. After its release only its cause explains a wait.
        waits = ~member & columns.waits[row]
        at, begun, ended, path = (column[waits] for column in (row, start, stop, chain))
        released = np.minimum(np.maximum(columns.released_ns[at], begun), ended)
        released = np.where(columns.is_released[at], released, ended)
        self._gaps.add(at, released, ended, path, UNEXPLAINED)
        self._delegate(at, self._releasing[at], begun, released, columns.resolution_ns[at], path)
        # A sleep or poll that waits for no lane: its period is named, the rest is own time.
        sleeps = ~(member | waits) & (columns.cause[row] != NONE)
        self._gaps.add(row, start, stop, chain, OWN, where=sleeps)
        self._own.add(row, start, stop, chain, where=~(member | waits | sleeps))  # Rule 1.

    def _delegate(self, row: Ints, lane: Ints, start: Ints, end: Ints, resolution_ns: Ints, chain: Ints) -> None:
        """Replace [start, end) of waiting spans by the work of lanes. Their ends have `resolution_ns`."""
        some = start < end
        row, lane, start, end, chain = (column[some] for column in (row, lane, start, end, chain))
        self._edges.add(end, resolution_ns[some])
        inner = self._extended(chain, lane)
        # A wait may lead back to a lane that itself waits for it: a cycle, counted as a clip.
        self._cycles.add(end, row, end - start, where=(inner == NONE) & (lane != NONE))
        self._gaps.add(row, start, end, chain, UNEXPLAINED, where=inner == NONE)
        bounds = self.lanes.position(lane, start), self.lanes.position(lane, end)
        self._windows.add(*bounds, row, inner, where=inner != NONE)

    def _extended(self, chain: Ints, lane: Ints) -> Ints:
        """Return chains with a lane more; NONE for a lane in its chain, or without a lane."""
        pairs, at = np.unique(chain << 32 | (lane + 1), return_inverse=True)
        paths, found = list(self._chains), []
        for pair in pairs.tolist():
            path, added = paths[pair >> 32], (pair & 0xFFFFFFFF) - 1
            found.append(NONE if added == NONE or added in path else self._chains[*path, added])
        return np.array(found, np.int64)[at]

    def _causes(self) -> Iterator[tuple[Ints, Ints, Ints, Ints, Ints]]:
        """Yield the gaps in two parts, from start to end: the rest, and the named cause. A cause takes the last parts
        of a span's gaps, at most its period."""
        row, start, end, chain, rest = self._gaps.take()
        order = np.lexsort((-end, row))
        row, start, end, chain, rest = (column[order] for column in (row, start, end, chain, rest))
        length = end - start
        later = np.cumsum(length) - length
        later -= later[np.searchsorted(row, row)]  # gaps of the same span, after this gap
        unknown = self.columns.unknown[row]
        named = np.where(unknown, 0, np.clip(self.columns.period_ns[row] - later, 0, length))
        self._edges.add(end - named, self.columns.resolution_ns[row], where=(named > 0) & (named < length))
        yield start, end - named, row, np.where(unknown, OWN, rest), chain
        yield end - named, end, row, np.full(len(row), CAUSE), chain

    def _releasing_lanes(self) -> Ints:
        """Return for each span the lane that was busy last before its release."""
        columns, lanes = self.columns, self.lanes
        row, lane = columns.releasing(np.arange(len(columns)))
        release_ns = np.where(columns.is_released, columns.released_ns, columns.end_ns)[row]
        piece, until_ns = lanes.last_busy(lane, release_ns)
        some = (piece != NONE) & (lane != NONE)
        row, lane, until_ns = row[some], lane[some], until_ns[some]
        _, last_ns = lanes.last_busy(lane, np.full(len(lane), lanes.start_ns + lanes.wall_ns))
        by_name = np.argsort(np.argsort(np.array(columns.lanes)))
        order = np.lexsort((by_name[lane], last_ns, until_ns, row))
        latest = order[ends_of_runs(row[order])]
        found = np.full(len(columns), NONE)
        found[row[latest]] = lane[latest]
        return found


def _collectives(columns: Columns) -> tuple[Ints, list[Clip]]:
    """Return for each member of a collective the last member that starts before its end; and the clips of members that
    ended before the last member entered."""
    row, found = columns.members, np.full(len(columns), NONE)
    group, end_ns = columns.group[row], columns.end_ns[row]
    found[row] = row[np.maximum(columns.last_member(group, end_ns - 1), np.searchsorted(group, group))]
    last = row[np.searchsorted(group, group, "right") - 1]
    late_ns = columns.start_ns[last] - end_ns
    allowed_ns = columns.resolution_ns[last] + columns.resolution_ns[row]
    wrong = np.flatnonzero((late_ns > allowed_ns) & ~columns.truncated[row])
    late = zip(columns.spans.ids(row[wrong]), late_ns[wrong].tolist(), strict=True)
    return found, [Clip("inconsistent", *member) for member in late]


def _check(trace: Trace) -> None:
    if trace.wall_ns < 0:
        raise BundleError("The trace ends before it starts.", "collect the run's evidence again")
    named = [(kind.layer, f"A span ({kind.text(detail)})") for kind, detail in trace.spans.kinds]
    named += [(layer, f"An interval of lane {i.lane}") for i in trace.intervals for layer in (i.layer, i.inside)]
    for layer, what in named:
        if layer not in LAYERS:
            raise BundleError(f"{what} has the unknown layer {layer!r}.", f"use one of {', '.join(LAYERS)}")


def quality(segment: Segment) -> Quality:
    """Return the quality of the evidence for a segment."""
    if segment.span is None:
        return "unattributed"
    if segment.kind == "cause":
        return "named wait"
    if segment.kind == "unexplained":
        return "unexplained"
    return own_quality(segment.span)


def own_quality(span: Span) -> OwnQuality:
    """Return the quality of a span's own time. A span whose end was not observed is between marks."""
    return BETWEEN_MARKS if span.truncated else span.kind.quality


def _summed(trace: Trace, walk: _Walk, segments: Segments) -> Attribution:
    """Return the attribution by segments."""
    columns, (at_ns, resolution_ns) = walk.columns, walk.edges_ns()
    layer, length_ns = segments.layer, segments.end_ns - segments.start_ns
    is_between = np.append(columns.between_marks, False)[segments.row] & (segments.kind == OWN)
    known_ns = np.zeros((BETWEEN + 1, len(SEGMENT_LAYERS)), np.int64)
    np.add.at(known_ns, (np.where(is_between, BETWEEN, segments.kind), layer), length_ns)
    total_ns = known_ns.sum(axis=0)
    names = _by_layer(layer, np.append(columns.name, NONE)[segments.row], length_ns, columns.names)
    cause = np.where(segments.kind == CAUSE, np.append(columns.cause, NONE)[segments.row], NONE)
    causes = _by_layer(layer, cause, length_ns, columns.causes)
    # An uncertain boundary moves time between two layers: both are uncertain by it.
    turn = np.flatnonzero(layer[1:] != layer[:-1])
    place = np.searchsorted(at_ns, segments.start_ns[turn + 1])
    is_edge = np.append(at_ns, NONE)[place] == segments.start_ns[turn + 1]
    moved_ns = np.where(is_edge, np.append(resolution_ns, 0)[place], 0)
    uncertain_ns = np.zeros_like(total_ns)
    for side in (turn, turn + 1):
        np.add.at(uncertain_ns, layer[side], moved_ns)
    low_ns, high_ns, unattributed_ns = total_ns - uncertain_ns, total_ns + uncertain_ns, int(total_ns[-1])
    # `hi_ns` is the upper bound of a layer's time inside spans of another layer.
    for interval, overlap_ns in _overlaps(trace.intervals, segments, columns.lanes):
        low_ns[NUMBER_OF_LAYER[interval.inside]] -= min(interval.hi_ns, overlap_ns)
        high_ns[NUMBER_OF_LAYER[interval.layer]] += min(interval.hi_ns, overlap_ns)
    # All unattributed time may belong to a layer whose source is missing.
    for lacking in trace.not_measured:
        if lacking.inside == UNATTRIBUTED:
            high_ns[NUMBER_OF_LAYER[lacking.layer]] += unattributed_ns
    # a layer that worked without delaying the main lane has 0; a layer without work has no row
    in_window = (columns.start_ns < trace.end_ns) & (columns.end_ns > trace.start_ns)
    worked = {*columns.layer[in_window].tolist()} | {NUMBER_OF_LAYER[one.layer] for one in trace.intervals}
    rows = tuple(
        LayerTime(
            name,
            LAYERS[name].group,
            int(total_ns[number]),
            int(known_ns[UNEXPLAINED, number]),
            max(0, int(low_ns[number])),
            min(trace.wall_ns, int(high_ns[number])),
            int(known_ns[OWN, number]),
            int(known_ns[BETWEEN, number]),
            int(known_ns[CAUSE, number]),
            tuple((cause, ns, _period(cause)) for cause, ns in causes[number]),
            names[number],
        )
        for name, number in NUMBER_OF_LAYER.items()
        if total_ns[number] or number in worked
    )
    merged: Counter[tuple[str, str]] = Counter()
    for clip in (*walk.clips(), *trace.clips):
        merged[clip.kind, clip.span] += clip.ns
    return Attribution(
        trace.wall_ns,
        rows,
        unattributed_ns,
        trace.not_measured,
        trace.intervals,
        tuple(Clip(kind, span, ns) for (kind, span), ns in merged.items()),
        segments,
    )


def _by_layer(layer: Ints, item: Ints, ns: Ints, texts: Sequence[str]) -> list[tuple[tuple[str, int], ...]]:
    """Sum by layer and item; of each layer, the largest sum is first."""
    some = item != NONE
    pairs, group = np.unique(layer[some] * len(texts) + item[some], return_inverse=True)
    sums_ns = np.zeros(len(pairs), np.int64)
    np.add.at(sums_ns, group, ns[some])
    found: list[list[tuple[str, int]]] = [[] for _ in SEGMENT_LAYERS]
    for pair, sum_ns in zip(pairs.tolist(), sums_ns.tolist(), strict=True):
        found[pair // len(texts)].append((texts[pair % len(texts)], sum_ns))
    return [tuple(sorted(items, key=lambda item: (-item[1], item[0]))) for items in found]


def _period(cause: str) -> Literal["read", "default"] | None:
    """Return the origin of a cause's period; None for a cause without a row."""
    row = cause_of(cause)
    return None if row is None else "read" if row.period_is_read else "default"


def _overlaps(
    intervals: Sequence[Interval], segments: Segments, lanes: Sequence[str]
) -> Iterator[tuple[Interval, int]]:
    """Yield the time of the segments of the layer `inside`, in the lane of each interval."""
    numbers = {name: number for number, name in enumerate(lanes)}
    groups: dict[tuple[str, str], list[Interval]] = {}
    for interval in intervals:
        groups.setdefault((interval.lane, interval.inside), []).append(interval)
    for (name, inside), own in groups.items():
        lane, layer = numbers.get(name, NONE), NUMBER_OF_LAYER[inside]
        some = segments.where((segments.kind == OWN) & (segments.lane == lane) & (segments.layer == layer))
        until = Covered(some.start_ns, some.end_ns)
        last_ns, first_ns = until(ints([one.end_ns for one in own])), until(ints([one.start_ns for one in own]))
        yield from zip(own, np.maximum(0, last_ns - first_ns).tolist(), strict=True)
