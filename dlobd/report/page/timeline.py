"""Slices of lanes for the timeline, limited in number for the browser, with exact sums.

A slice is one span, or an aggregate of short neighbours in one row. An aggregate has count and total by layer and name;
only the positions of its spans are lost. Each lane is aggregated once, in the finest bins; larger bins, until few parts
are left, consist of these. The page merges further, by pixels.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np

from dlobd.attribution.attribute import CAUSE, critical_path, nested, quality
from dlobd.attribution.attribute import UNEXPLAINED as IS_UNEXPLAINED
from dlobd.attribution.trace import SEGMENT_LAYERS, Attribution, Segments, Span, Spans, Trace
from dlobd.columns import NONE, Ints, Numbers, ints, starts_of_runs
from dlobd.layers import UNATTRIBUTED

MOST_PARTS = 16_000
"""Maximum number of parts of slices; with more, short neighbours are aggregated."""

MOST_LANES, MOST_ROWS, MOST_NAMES = 40, 32, 400
"""Maximum numbers of drawn lanes, of rows of a lane, and of names. Names with the most time are kept."""

WALL_LANE = "wall time"
"""Name of the row that shows the layer at each time."""

OTHER_NAMES, UNEXPLAINED = "other names", "unexplained"

FINEST_BINS = 1 << 14
NAME_LENGTH = 200
"""Maximum length of a name; longer names are cut."""

Name = tuple[str, str]
"""Layer, and name of spans."""


class _Parts(NamedTuple):
    """Columns of parts of slices: the spans of one name. Times count from the window's start.

    line: drawn row, lane * MOST_ROWS + depth. Lane 0 is the wall time.
    name, source: number of a `Name`, and of a source; NONE for several sources.
    row: place of a span in the trace, or of a segment of the critical path for the wall time.
    """

    line: Ints
    name: Ints
    spans: Ints
    ns: Ints
    start_ns: Ints
    end_ns: Ints
    longest_ns: Ints
    resolution_ns: Ints
    source: Ints
    row: Ints

    @classmethod
    def of(cls, start_ns: Ints, end_ns: Ints, **columns: Ints) -> Self:
        """Return a part for each span."""
        ns = end_ns - start_ns
        return cls(start_ns=start_ns, end_ns=end_ns, spans=np.ones_like(ns), ns=ns, longest_ns=ns, **columns)

    def slices(self, width_ns: int) -> Ints:
        """Return a number for the slice of each part. Spans of a row that are shorter than a bin of the time axis, and
        begin in the same bin, are one slice."""
        bins = self.start_ns // width_ns if width_ns else np.arange(len(self.row))
        found: Ints = (self.line * (bins.max(initial=0) + 1) + bins) * 2 + (self.longest_ns >= width_ns)
        return found

    def merged(self, width_ns: int, names: int) -> Self:
        """Merge the parts of a slice that have the same name. The result is sorted by slice and name."""
        key = self.slices(width_ns) * names + self.name
        order = np.argsort(key, kind="stable")
        at = starts_of_runs(key[order])

        def over(ufunc: np.ufunc, column: Ints) -> Any:
            return ufunc.reduceat(column[order], at) if len(at) else column

        lowest, highest = over(np.minimum, self.source), over(np.maximum, self.source)
        return self._replace(
            line=self.line[order[at]],
            name=self.name[order[at]],
            spans=over(np.add, self.spans),
            ns=over(np.add, self.ns),
            start_ns=over(np.minimum, self.start_ns),
            end_ns=over(np.maximum, self.end_ns),
            longest_ns=over(np.maximum, self.longest_ns),
            resolution_ns=over(np.maximum, self.resolution_ns),
            source=np.where(lowest == highest, lowest, NONE),
            row=self.row[order[at]],
        )


def timeline(trace: Trace, attribution: Attribution, most: int = MOST_PARTS) -> dict[str, object]:
    """Build the timeline for JSON.

    lanes: name and number of rows; lanes_left_out: number of lanes that are not drawn.
    spans: number in drawn lanes; too_deep: number of those below the last row of a lane, which are not drawn.
    slices: rows [lane, depth, start, end, source, resolution, more, part...]. A part is three numbers: name, count,
        sum. The name is an index of `names`, with the layer in its first line.
    merged_below_ns: shorter spans may be aggregated; 0 without aggregates.
    """
    spans, columns, path = trace.spans, nested(trace), critical_path(attribution)
    kinds, names, sources = _kinds(spans), Numbers[Name](), Numbers[str]()
    name, source = ints([names[kind] for kind in kinds]), ints([sources[origin.source] for origin in spans.origins])
    found = [_wall(path, kinds, names, trace.start_ns)]
    drawn = _drawn(trace, path)
    first = np.searchsorted(spans.lane[columns.row], np.arange(len(spans.lanes) + 1)).tolist()
    places = {lane: slice(*first[number : number + 2]) for number, lane in enumerate(spans.lanes)}
    count = sum(places[lane].stop - places[lane].start for lane in drawn)
    width_ns = -(-trace.wall_ns // FINEST_BINS) if len(path) + count > most else 0
    for number, lane in enumerate(drawn, 1):
        at = places[lane]
        row, start_ns, end_ns, depth = (
            column[at][columns.depth[at] < MOST_ROWS]
            for column in (columns.row, columns.start_ns, columns.end_ns, columns.depth)
        )
        parts = _Parts.of(
            start_ns - trace.start_ns,
            end_ns - trace.start_ns,
            line=number * MOST_ROWS + depth,
            name=name[spans.kind[row]],
            resolution_ns=spans.resolution_ns[row],
            source=source[spans.origin[row]],
            row=row,
        )
        found.append(parts.merged(width_ns, len(names)) if width_ns else parts)
    parts = _Parts(*map(np.concatenate, zip(*found, strict=True)))
    while 0 < width_ns < trace.wall_ns and len(parts.row) > most:
        width_ns *= 2
        parts = parts.merged(width_ns, len(names))
    rows = [1 + int((parts.line[parts.line // MOST_ROWS == at] % MOST_ROWS).max(initial=0)) for at in range(len(found))]
    slices = parts._replace(name=np.zeros_like(parts.name)).merged(width_ns, 1)
    labels, texts = Numbers[str](), Numbers[str]()
    # the layer keeps equal names of two layers distinct
    label = ints([labels[_cut(f"{layer}\n{name}")] for layer, name in names])
    of_slices = [texts[_cut(source)] for source in (*sources, "")], _facts(slices, trace, path, texts)
    return {
        "wall_ns": trace.wall_ns,
        "lanes": [{"name": _cut(lane), "rows": rows} for lane, rows in zip((WALL_LANE, *drawn), rows, strict=True)],
        "lanes_left_out": len(trace.lanes) - len(drawn),
        "spans": count,
        "too_deep": count - int(parts.spans[parts.line >= MOST_ROWS].sum()),
        "merged_below_ns": width_ns,
        "slices": list(_rows(slices, parts._replace(name=label[parts.name]), width_ns, *of_slices)),
        "names": list(labels),
        "texts": list(texts),
    }


def _wall(path: Segments, kinds: Sequence[Name], names: Numbers[Name], zero_ns: int) -> _Parts:
    number, found = named(path, kinds)
    titles = [(layer, f"{name} ({cause})" if cause else name) for layer, name, cause in found]
    none = np.zeros(len(path), np.int64)
    return _Parts.of(
        path.start_ns - zero_ns,
        path.end_ns - zero_ns,
        line=none,
        name=ints([names[title] for title in titles])[number],
        resolution_ns=none,
        source=none + NONE,
        row=np.arange(len(path)),
    )


def named(segments: Segments, kinds: Sequence[Name]) -> tuple[Ints, list[tuple[str, str, str]]]:
    """Return a number for each segment; and for each number layer, name and cause: `UNEXPLAINED`, or "" for own time.
    `kinds`: layer and name of each kind of span."""
    spans, texts, causes = segments.spans, Numbers[str](), Numbers[str]()
    name = ints([texts[name] for _, name in (*kinds, ("", UNATTRIBUTED))])
    cause = ints([causes[cause] for cause in ("", UNEXPLAINED, *(wait.cause for wait in spans.waits))])
    kind = np.append(spans.kind, len(kinds))[segments.row]
    wait = np.where(segments.kind == CAUSE, 2 + np.append(spans.wait, 0)[segments.row], segments.kind == IS_UNEXPLAINED)
    shape = len(SEGMENT_LAYERS), len(texts), len(causes)
    keys = np.ravel_multi_index((segments.layer, name[kind], cause[wait]), shape)
    found, number = np.unique(keys, return_inverse=True)
    words = SEGMENT_LAYERS, list(texts), list(causes)
    places = zip(*(place.tolist() for place in np.unravel_index(found, shape)), strict=True)
    return number, [(words[0][layer], words[1][name], words[2][cause]) for layer, name, cause in places]


def _drawn(trace: Trace, path: Segments) -> list[str]:
    """Return the lanes with the largest parts of the wall time, and the first lanes of each kind, in the order of the
    trace."""
    spent_ns = np.bincount(path.lane, path.end_ns - path.start_ns, len(trace.spans.lanes)).tolist()
    spent, before = dict(zip(trace.spans.lanes, spent_ns, strict=True)), Counter[str]()
    ranked = []
    for lane in trace.lanes:
        kind = re.sub(r"\d+", "", lane)
        ranked.append((-spent[lane], before[kind], lane))
        before[kind] += 1
    kept = {lane for *_, lane in sorted(ranked)[:MOST_LANES]}
    return [lane for lane in trace.lanes if lane in kept]


def _kinds(spans: Spans) -> list[Name]:
    """Return layer and name of each kind of span; `OTHER_NAMES` beyond the `MOST_NAMES` with the most time."""
    names = Numbers[Name]()
    number = ints([names[kind.layer, kind.text(detail)] for kind, detail in spans.kinds])
    spent_ns = np.bincount(number[spans.kind], spans.end_ns - spans.start_ns, len(names))
    found = list(names)
    for place in np.argsort(-spent_ns)[MOST_NAMES:].tolist():
        found[place] = found[place][0], OTHER_NAMES
    return [found[place] for place in number.tolist()]


def _rows(
    slices: _Parts, parts: _Parts, width_ns: int, sources: Sequence[int], facts: Mapping[int, int]
) -> Iterator[list[int]]:
    """Yield the rows of the page; see `timeline`. `sources` and `facts`: places of texts."""
    number = parts.slices(width_ns)
    order = np.lexsort((-parts.ns, number))
    ends = [*starts_of_runs(number[order]).tolist(), len(order)]
    of_parts = np.stack([parts.name, parts.spans, parts.ns], axis=1)[order].tolist()
    columns = np.stack([slices.line, slices.start_ns, slices.end_ns, slices.source, slices.resolution_ns], axis=1)
    for place, (line, start_ns, end_ns, source, resolution_ns) in enumerate(columns.tolist()):
        some = of_parts[ends[place] : ends[place + 1]]
        about = sources[source], resolution_ns, facts.get(place, facts[NONE])
        yield [*divmod(line, MOST_ROWS), start_ns, end_ns, *about, *chain.from_iterable(some)]


def _facts(slices: _Parts, trace: Trace, path: Segments, texts: Numbers[str]) -> dict[int, int]:
    """Return places of the texts about slices that are one span or segment; of other slices at NONE."""
    one, wall = slices.spans == 1, slices.line < MOST_ROWS
    segments, spans = (np.flatnonzero(one & of) for of in (wall, ~wall))
    found = {NONE: texts[""]}
    for place, segment in zip(segments.tolist(), path.where(slices.row[segments]), strict=True):
        found[place] = texts[_cut(f"{quality(segment)}; lane {segment.chain[-1]}")]
    for place, span in zip(spans.tolist(), trace.spans.rows(slices.row[spans]), strict=True):
        found[place] = texts[_cut(_more(span))]
    return found


def _more(span: Span) -> str:
    facts = [f"waits for {', '.join(span.waits_for)}"] if span.waits_for else []
    facts += [f"collective {span.rendezvous}"] if span.rendezvous else []
    facts += [f"cause {span.cause}"] if span.cause else []
    facts += ["its end was not observed"] if span.truncated else []
    return "; ".join(facts)


def _cut(text: str) -> str:
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"
