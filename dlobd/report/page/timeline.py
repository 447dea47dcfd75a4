"""Slices of lanes for the timeline, limited in number for the browser, with exact sums.

A slice is one span, or an aggregate of short neighbours in one row. An aggregate has count and total by layer and name;
only the positions of its spans are lost. The page merges further, by pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dlobd.attribution.attribute import critical_path, nested, quality
from dlobd.attribution.trace import Attribution, Segment, Segments, Span, Trace
from dlobd.columns import NONE, Flags, Ints, Numbers, begins_of_runs, ints
from dlobd.layers import UNATTRIBUTED

MOST_SLICES = 8_000
"""Maximum number of slices; with more, short neighbours are aggregated."""

MOST_LANES = 40
"""Maximum number of drawn lanes; further lanes are counted."""

WALL_LANE = "wall time"
"""Name of the row that shows the layer at each time."""

FIRST_BINS = 1 << 14
NAME_LENGTH = 200
"""Maximum length of a name; longer names are cut."""


class _Slices(NamedTuple):
    """Columns of slices; times count from the window's start.

    lane: drawn row; 0 for the wall time.
    part: number of layer and name.
    row: place of a span in the trace, or of a segment of the critical path for the wall time.
    """

    lane: Ints
    depth: Ints
    start_ns: Ints
    end_ns: Ints
    part: Ints
    row: Ints


@dataclass(slots=True)
class _Names:
    places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int:
        return self.places.setdefault(_cut(text), len(self.places))


def timeline(trace: Trace, attribution: Attribution, most: int = MOST_SLICES) -> dict[str, object]:
    """Build the timeline for JSON.

    lanes: name and number of rows; lanes_left_out: number of lanes that are not drawn.
    spans: number in drawn lanes; slices: rows [lane, depth, start, end, source, resolution, more, part...]. A part is
        three numbers: name, count, sum. The name is an index of `names`, with the layer in its first line.
    merged_below_ns: shorter spans may be aggregated; 0 without aggregates.
    """
    drawn, parts, path = trace.lanes[:MOST_LANES], Numbers[tuple[str, str]](), critical_path(attribution)
    wall, spans = _wall(path, parts, trace.start_ns), _spans(trace, drawn, parts)
    slices = _Slices(*map(np.concatenate, zip(wall, spans, strict=True)))
    rows = [int(slices.depth[slices.lane == lane].max(initial=0)) + 1 for lane in range(len(drawn) + 1)]
    below_ns = _shortest(slices, trace.wall_ns, most)
    names, texts = _Names(), _Names()
    return {
        "wall_ns": trace.wall_ns,
        "lanes": [{"name": _cut(name), "rows": rows} for name, rows in zip((WALL_LANE, *drawn), rows, strict=True)],
        "lanes_left_out": len(trace.lanes) - len(drawn),
        "spans": len(spans.row),
        "merged_below_ns": below_ns,
        "slices": list(_merged(slices, below_ns, _Texts(trace, path, list(parts), names, texts))),
        "names": list(names.places),
        "texts": list(texts.places),
    }


def _wall(path: Segments, parts: Numbers[tuple[str, str]], zero_ns: int) -> _Slices:
    part = ints([parts[segment.layer, _title(segment)] for segment in path])
    none = np.zeros(len(path), np.int64)
    return _Slices(none, none, path.start_ns - zero_ns, path.end_ns - zero_ns, part, np.arange(len(path)))


def _spans(trace: Trace, drawn: tuple[str, ...], parts: Numbers[tuple[str, str]]) -> _Slices:
    spans, columns = trace.spans, nested(trace)
    places = {name: place for place, name in enumerate(drawn, 1)}
    lane = ints([places.get(name, NONE) for name in spans.lanes])[spans.lane[columns.row]]
    part = ints([parts[kind.layer, kind.text(detail)] for kind, detail in spans.kinds])[spans.kind[columns.row]]
    times = columns.start_ns - trace.start_ns, columns.end_ns - trace.start_ns
    found = _Slices(lane, columns.depth, *times, part, columns.row)
    order = np.argsort(lane, kind="stable")
    return _Slices(*(column[order[np.count_nonzero(lane == NONE) :]] for column in found))


def _shortest(slices: _Slices, wall_ns: int, most: int) -> int:
    """Return the duration below which neighbours are merged, so that about `most` slices are left; 0 for few slices.

    In each row, slices shorter than a bin of the time axis are merged if they begin in the same bin."""
    if len(slices.row) <= most:
        return 0
    bins = FIRST_BINS
    while True:
        width_ns = max(1, wall_ns // bins)
        if len(np.unique(_groups(slices, width_ns))) <= most or bins <= 2:
            return width_ns
        bins //= 2


def _groups(slices: _Slices, width_ns: int) -> Ints:
    """Return for each slice the first slice that it is merged with."""
    place = np.arange(len(slices.row))
    if not width_ns:
        return place
    short = np.flatnonzero(slices.end_ns - slices.start_ns < width_ns)
    keys = [column[short] for column in (slices.start_ns // width_ns, slices.depth, slices.lane)]
    order = np.lexsort(keys)
    begins = begins_of_runs(*(key[order] for key in keys))
    place[short[order]] = short[order[np.flatnonzero(begins)]][np.cumsum(begins) - 1]
    return place


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of slices: names, sources and facts."""

    trace: Trace
    path: Segments
    parts: list[tuple[str, str]]
    names: _Names
    texts: _Names


def _merged(slices: _Slices, width_ns: int, texts: _Texts) -> Iterator[list[int]]:
    """Yield the rows of the page; see `timeline`."""
    group = _groups(slices, width_ns)
    first, place, counts = np.unique(group, return_inverse=True, return_counts=True)
    start_ns, end_ns = slices.start_ns[first], slices.end_ns[first]
    np.minimum.at(start_ns, place, slices.start_ns)
    np.maximum.at(end_ns, place, slices.end_ns)
    resolution_ns, sources = _origins(slices, place, len(first), texts)
    pairs, at = np.unique(place * len(texts.parts) + slices.part, return_inverse=True)
    sums = np.zeros((len(pairs), 2), np.int64)
    np.add.at(sums, at, np.stack([np.ones_like(place), slices.end_ns - slices.start_ns], axis=1))
    bounds = np.searchsorted(pairs, np.arange(len(first) + 1) * len(texts.parts)).tolist()
    singles = _facts(slices, first[counts == 1], texts)
    bounds_ns = np.stack([slices.lane[first], slices.depth[first], start_ns, end_ns], axis=1).tolist()
    others = zip(bounds_ns, sources, resolution_ns.tolist(), first.tolist(), strict=True)
    for number, (row, source, error_ns, one) in enumerate(others):
        row += [texts.texts.place(source), error_ns, texts.texts.place(singles.get(one, ""))]
        of_group = slice(bounds[number], bounds[number + 1])
        found = zip((pairs[of_group] % len(texts.parts)).tolist(), sums[of_group].tolist(), strict=True)
        for (layer, name), (count, ns) in sorted(
            ((texts.parts[part], counted) for part, counted in found), key=lambda part: (-part[1][1], part[0])
        ):
            # the layer keeps equal names of two layers distinct
            row += [texts.names.place(f"{layer}\n{name}"), count, ns]
        yield row


def _origins(slices: _Slices, place: Ints, groups: int, texts: _Texts) -> tuple[Ints, list[str]]:
    """Return the largest resolution of each group, and its source; empty if it has several."""
    spans, own = texts.trace.spans, slices.lane > 0
    resolution_ns, names = np.zeros(groups, np.int64), Numbers[str]()
    np.maximum.at(resolution_ns, place[own], spans.resolution_ns[slices.row[own]])
    source = ints([names[origin.source] for origin in spans.origins])[spans.origin[slices.row[own]]]
    lowest, highest = np.full(groups, len(names)), np.full(groups, NONE)
    np.minimum.at(lowest, place[own], source)
    np.maximum.at(highest, place[own], source)
    known = [*names, ""]
    same = zip(lowest.tolist(), highest.tolist(), strict=True)
    return resolution_ns, [known[low] if low == high else "" for low, high in same]


def _facts(slices: _Slices, places: Ints, texts: _Texts) -> dict[int, str]:
    """Return the facts of slices that are one span or segment."""
    wall: Flags = slices.lane[places] == 0
    segments, spans = texts.path.where(slices.row[places[wall]]), texts.trace.spans.rows(slices.row[places[~wall]])
    found = {at: _of_segment(one) for at, one in zip(places[wall].tolist(), segments, strict=True)}
    return found | {at: _more(one) for at, one in zip(places[~wall].tolist(), spans, strict=True)}


def _of_segment(segment: Segment) -> str:
    return f"{quality(segment)}; lane {segment.chain[-1]}"


def _title(segment: Segment) -> str:
    if segment.span is None:
        return UNATTRIBUTED
    if segment.kind == "cause":
        return f"{segment.span.name} ({segment.span.cause})"
    return f"{segment.span.name} (unexplained)" if segment.kind == "unexplained" else segment.span.name


def _more(span: Span) -> str:
    facts = [f"waits for {', '.join(span.waits_for)}"] if span.waits_for else []
    facts += [f"collective {span.rendezvous}"] if span.rendezvous else []
    facts += [f"cause {span.cause}"] if span.cause else []
    facts += ["its end was not observed"] if span.truncated else []
    return "; ".join(facts)


def _cut(text: str) -> str:
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"
