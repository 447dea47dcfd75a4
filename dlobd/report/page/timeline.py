"""Slices of lanes for the timeline, limited in number for the browser, with exact sums.

A slice is one span, or an aggregate of short neighbours in one row. An aggregate has count and total by layer and name;
only the positions of its spans are lost. The page merges further, by pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dlobd.attribution.attribute import critical_path, quality
from dlobd.attribution.nesting import arrange, by_lane
from dlobd.attribution.trace import Attribution, Segment, Span, Trace
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


@dataclass(slots=True)
class Slice:
    """Drawn rectangle; times count from the window's start. `parts` maps (layer, name) to [count, total duration]."""

    lane: int
    depth: int
    start_ns: int
    end_ns: int
    parts: dict[tuple[str, str], list[int]]
    source: str = ""
    resolution_ns: int = 0
    more: str = ""

    @property
    def count(self) -> int:
        """Number of spans."""
        return sum(count for count, _ in self.parts.values())


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
    lanes = by_lane(trace.spans)
    drawn = trace.lanes[:MOST_LANES]
    slices = list(_wall(attribution, trace.start_ns))
    depths = [1]
    for place, lane in enumerate(drawn, 1):
        own = list(_lane(place, lanes[lane], trace))
        depths.append(max((one.depth for one in own), default=0) + 1)
        slices += own
    spans = sum(one.count for one in slices if one.lane)
    merged, below_ns = aggregated(slices, trace.wall_ns, most)
    names, keys = _Names(), _Names()
    return {
        "wall_ns": trace.wall_ns,
        "lanes": [{"name": _cut(name), "rows": rows} for name, rows in zip((WALL_LANE, *drawn), depths, strict=True)],
        "lanes_left_out": len(trace.lanes) - len(drawn),
        "spans": spans,
        "merged_below_ns": below_ns,
        "slices": [list(_row(one, names, keys)) for one in merged],
        "names": list(names.places),
        "texts": list(keys.places),
    }


def aggregated(slices: Sequence[Slice], wall_ns: int, most: int) -> tuple[list[Slice], int]:
    """Merge slices to about `most`; return them with the duration below which neighbours were merged, or 0.

    In each row, slices shorter than a bin of the time axis are merged if they begin in the same bin. Bins grow until
    about `most` slices are left.
    """
    if len(slices) <= most:
        return list(slices), 0
    bins = FIRST_BINS
    while True:
        width_ns = max(1, wall_ns // bins)
        found = _binned(slices, width_ns)
        if len(found) <= most or bins <= 2:
            return found, width_ns
        bins //= 2


def _binned(slices: Iterable[Slice], width_ns: int) -> list[Slice]:
    found: list[Slice] = []
    open_: dict[tuple[int, int, int], Slice] = {}
    for one in slices:
        if one.end_ns - one.start_ns >= width_ns:
            found.append(one)
            continue
        key = one.lane, one.depth, one.start_ns // width_ns
        into = open_.get(key)
        if into is None:
            parts = {name: [*counted] for name, counted in one.parts.items()}
            into = Slice(one.lane, one.depth, one.start_ns, one.end_ns, parts, one.source, one.resolution_ns, one.more)
            open_[key] = into
            found.append(into)
            continue
        into.start_ns, into.end_ns = min(into.start_ns, one.start_ns), max(into.end_ns, one.end_ns)
        into.resolution_ns = max(into.resolution_ns, one.resolution_ns)
        into.source = into.source if into.source == one.source else ""
        into.more = ""
        for name, (count, ns) in one.parts.items():
            total = into.parts.setdefault(name, [0, 0])
            total[0] += count
            total[1] += ns
    return found


def _lane(place: int, spans: Sequence[Span], trace: Trace) -> Iterator[Slice]:
    for nested in arrange(spans, trace.start_ns, trace.end_ns).nested:
        span, length_ns = nested.span, nested.end_ns - nested.start_ns
        yield Slice(
            place,
            nested.depth,
            nested.start_ns - trace.start_ns,
            nested.end_ns - trace.start_ns,
            {(span.layer, span.name): [1, length_ns]},
            span.source,
            span.resolution_ns,
            _more(span),
        )


def _wall(attribution: Attribution, zero_ns: int) -> Iterator[Slice]:
    for segment in critical_path(attribution):
        yield Slice(
            0,
            0,
            segment.start_ns - zero_ns,
            segment.end_ns - zero_ns,
            {(segment.layer, _title(segment)): [1, segment.end_ns - segment.start_ns]},
            more=f"{quality(segment)}; lane {segment.chain[-1]}",
        )


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


def _row(one: Slice, names: _Names, texts: _Names) -> Iterator[int]:
    yield from (one.lane, one.depth, one.start_ns, one.end_ns, texts.place(one.source), one.resolution_ns)
    yield texts.place(one.more)
    for (layer, name), (count, ns) in sorted(one.parts.items(), key=lambda part: (-part[1][1], part[0])):
        # the layer keeps equal names of two layers distinct
        yield from (names.place(f"{layer}\n{name}"), count, ns)


def _cut(text: str) -> str:
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"
