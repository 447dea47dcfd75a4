"""Sums an attribution by layer: bounds, degrees of evidence, spans and causes. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from dlobd.attribution.columns import NUMBER_OF_LAYER, Columns
from dlobd.attribution.trace import SEGMENT_KINDS, Attribution, Segment, Segments, Span, Trace
from dlobd.columns import NONE, Covered, Ints, ints
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import Clip, Interval, LayerTime
from dlobd.spans import BETWEEN_MARKS, OwnQuality, cause_of

Quality = Literal["measured", "between marks", "named wait", "unexplained", "unattributed"]

OWN, CAUSE, UNEXPLAINED, NO_SPAN = range(len(SEGMENT_KINDS))
BETWEEN = len(SEGMENT_KINDS)
"""Number of own time between marks."""


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


def summed(
    trace: Trace, segments: Segments, columns: Columns, edges_ns: tuple[Ints, Ints], clips: Sequence[Clip]
) -> Attribution:
    """Return the attribution by segments. `edges_ns`: times of boundaries, sorted, with their uncertainty."""
    length_ns = segments.end_ns - segments.start_ns
    layer = segments.layer
    total_ns = _totals(layer, length_ns, len(LAYERS) + 1)
    is_between = np.append(columns.between_marks, False)[segments.row] & (segments.kind == OWN)
    quality_of = np.where(is_between, BETWEEN, segments.kind)
    known_ns = _totals(quality_of * (len(LAYERS) + 1) + layer, length_ns, (BETWEEN + 1) * (len(LAYERS) + 1))
    known_ns = known_ns.reshape(BETWEEN + 1, len(LAYERS) + 1)
    names = _by_layer(layer, np.append(columns.name, NONE)[segments.row], length_ns, columns.names)
    cause = np.where(segments.kind == CAUSE, np.append(columns.cause, NONE)[segments.row], NONE)
    causes = _by_layer(layer, cause, length_ns, columns.causes)
    # An uncertain boundary moves time between two layers: both are uncertain by it.
    turn = np.flatnonzero(layer[1:] != layer[:-1])
    at_ns, resolution_ns = edges_ns
    place = np.searchsorted(at_ns, segments.start_ns[turn + 1])
    is_edge = np.append(at_ns, NONE)[place] == segments.start_ns[turn + 1]
    moved_ns = np.where(is_edge, np.append(resolution_ns, 0)[place], 0)
    sides = np.concatenate([layer[turn], layer[turn + 1]])
    uncertain_ns = _totals(sides, np.append(moved_ns, moved_ns), len(LAYERS) + 1)
    low = dict(zip(LAYERS, (total_ns - uncertain_ns).tolist(), strict=False))
    high = dict(zip(LAYERS, (total_ns + uncertain_ns).tolist(), strict=False))
    # `hi_ns` is the upper bound of a layer's time inside spans of another layer.
    for interval, overlap_ns in _overlaps(trace.intervals, segments, columns.lanes):
        low[interval.inside] -= min(interval.hi_ns, overlap_ns)
        high[interval.layer] += min(interval.hi_ns, overlap_ns)
    # All unattributed time may belong to a layer whose source is missing.
    unattributed_ns = int(total_ns[-1])
    for lacking in trace.not_measured:
        if lacking.inside == UNATTRIBUTED:
            high[lacking.layer] += unattributed_ns
    # a layer that worked without delaying the main lane has 0; a layer without work has no row
    in_window = (columns.start_ns < trace.end_ns) & (columns.end_ns > trace.start_ns)
    worked = {*columns.layer[in_window].tolist()} | {NUMBER_OF_LAYER[one.layer] for one in trace.intervals}
    rows = tuple(
        LayerTime(
            name,
            LAYERS[name].group,
            int(total_ns[number]),
            int(known_ns[UNEXPLAINED, number]),
            max(0, low[name]),
            min(trace.wall_ns, high[name]),
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
    for clip in (*clips, *trace.clips):
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


def _totals(group: Ints, ns: Ints, groups: int) -> Ints:
    """Sum exactly by the number of a group."""
    found = np.zeros(groups, np.int64)
    np.add.at(found, group, ns)
    return found


def _by_layer(layer: Ints, item: Ints, ns: Ints, texts: Sequence[str]) -> list[tuple[tuple[str, int], ...]]:
    """Sum by layer and item; of each layer, the largest sum is first."""
    some = item != NONE
    pairs, group = np.unique(layer[some] * len(texts) + item[some], return_inverse=True)
    found: list[list[tuple[str, int]]] = [[] for _ in range(len(LAYERS) + 1)]
    for pair, total_ns in zip(pairs.tolist(), _totals(group, ns[some], len(pairs)).tolist(), strict=True):
        found[pair // len(texts)].append((texts[pair % len(texts)], total_ns))
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
