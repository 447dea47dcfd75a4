"""Spans of a run on one time axis, in columns; and their attribution. Pure.

A long run has millions of spans. `Spans` has a column per property, and has a value that many spans share, such as a
wait or attributes, once. Its elements are `Span`s, made when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from dlobd.columns import MOST, NONE, Codes, Flags, Ints, Numbers, Rows, begins_of_runs, distinct, ints, places
from dlobd.layers import LAYERS, TENSORFLOW, UNATTRIBUTED
from dlobd.schema import MAIN_LANE, Clip, ClockAnchor, Event, Interval, LayerTime, NotMeasured, Process
from dlobd.spans import BETWEEN_MARKS, STEP_RENDEZVOUS, Cause, SpanKind

NOT_RELEASED = -MOST
"""Value in the column `released_ns` without a release."""

NUMBER_OF_LAYER = {name: number for number, name in enumerate(LAYERS)}


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of one layer in one lane. Spans of one lane nest; a lane is one sequential timeline.

    Fields of a span that waits:
        waits_for: lanes that release the span; it waits until the last of them ends.
        released_ns: time of the release, if known; only `cause` can explain time after it.
        rendezvous: key of a collective; the member that starts last releases the other members.
        call: number of the collective among the collectives of its kind, or number of the step.
        unknown: the evidence for this span's own time is missing; that time stays unattributed.
        cause, cause_kind, cause_period_ns: text, row and period of the heartbeat, poll or sleep that explains wait time
            without activity in the releasing lane, up to one period.

    `detail` is the variable part of the name, such as the name of a Spark job.
    """

    id: str
    parent: str | None
    kind: SpanKind
    process: Process
    lane: str
    start_ns: int
    end_ns: int
    detail: str = ""
    waits_for: tuple[str, ...] = ()
    released_ns: int | None = None
    rendezvous: str = ""
    call: int | None = None
    cause: str = ""
    cause_kind: Cause | None = None
    cause_period_ns: int = 0
    source: str = ""
    resolution_ns: int = 1
    truncated: bool = False
    unknown: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layer(self) -> str:
        """Layer of the span's kind."""
        return self.kind.layer

    @property
    def name(self) -> str:
        """Name of the span's kind, with `detail` inserted."""
        return self.kind.text(self.detail)


class Origin(NamedTuple):
    """Lane, process and source of spans, and the part of their IDs before the number."""

    lane: str
    process: Process
    source: str
    id: str


class Wait(NamedTuple):
    """Wait of spans; see `Span`. The key of a collective is `rendezvous` and, if it has one, the number `call`."""

    waits_for: tuple[str, ...] = ()
    cause: str = ""
    cause_kind: Cause | None = None
    cause_period_ns: int = 0
    rendezvous: str = ""


@dataclass(frozen=True, eq=False)
class Spans(Rows[Span]):
    """Columns of spans; see `Span`.

    origin, kind, wait, attrs: places in `origins`, `kinds` (a kind and `detail`), `waits` and `attributes`.
    number: number of the ID; NONE if the ID has none.
    parent: row of the recorded parent in the same lane, or NONE.
    call: number of the collective or step, or NONE.
    """

    origin: Codes
    number: Ints
    parent: Ints
    kind: Codes
    start_ns: Ints
    end_ns: Ints
    resolution_ns: Ints
    wait: Codes
    released_ns: Ints
    call: Ints
    attrs: Codes
    truncated: Flags
    unknown: Flags
    origins: Sequence[Origin]
    kinds: Sequence[tuple[SpanKind, str]]
    waits: Sequence[Wait]
    attributes: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Spans:
        """Return the columns of spans."""
        spans, origins, waits = list(spans), Numbers[Origin](), Numbers[Wait]()
        attributes: list[Mapping[str, Any]] = [{}]
        # kinds of two layers may have the same name
        kinds: dict[tuple[int, str], tuple[int, SpanKind]] = {}
        rows: dict[tuple[str, str], int] = {}
        for row, span in enumerate(spans):
            rows.setdefault((span.lane, span.id), row)
            kinds.setdefault((id(span.kind), span.detail), (len(kinds), span.kind))
            if span.attrs:
                attributes.append(span.attrs)
        numbered = np.cumsum([bool(span.attrs) for span in spans], dtype=np.int32)
        return cls(
            origin=np.array([origins[Origin(s.lane, s.process, s.source, s.id)] for s in spans], np.int32),
            number=np.full(len(spans), NONE),
            parent=ints([NONE if s.parent is None else rows.get((s.lane, s.parent), NONE) for s in spans]),
            kind=np.array([kinds[id(span.kind), span.detail][0] for span in spans], np.int32),
            start_ns=ints([span.start_ns for span in spans]),
            end_ns=ints([span.end_ns for span in spans]),
            resolution_ns=ints([span.resolution_ns for span in spans]),
            wait=np.array([waits[_wait(span)] for span in spans], np.int32),
            released_ns=ints([NOT_RELEASED if span.released_ns is None else span.released_ns for span in spans]),
            call=ints([NONE if span.call is None else span.call for span in spans]),
            attrs=np.where([bool(span.attrs) for span in spans], numbered, 0).astype(np.int32),
            truncated=np.array([span.truncated for span in spans], np.bool_),
            unknown=np.array([span.unknown for span in spans], np.bool_),
            origins=list(origins),
            kinds=[(kind, detail) for (_, detail), (_, kind) in kinds.items()],
            waits=list(waits),
            attributes=attributes,
        )

    @classmethod
    def made(
        cls, origin: Origin, kinds: Sequence[tuple[SpanKind, str]], start_ns: Ints, end_ns: Ints, **columns: Any
    ) -> Spans:
        """Return spans of one origin. Without a given column they have no wait, call, parent or attributes."""
        values: dict[str, Any] = {
            **dict.fromkeys(("number", "parent", "call"), np.full_like(start_ns, NONE)),
            **dict.fromkeys(("truncated", "unknown"), np.zeros_like(start_ns, np.bool_)),
            **dict.fromkeys(("origin", "kind", "wait", "attrs"), np.zeros_like(start_ns, np.int32)),
            "resolution_ns": np.ones_like(start_ns),
            "released_ns": np.full_like(start_ns, NOT_RELEASED),
            "waits": [Wait()],
            "attributes": [{}],
        }
        return cls(origins=[origin], kinds=kinds, start_ns=start_ns, end_ns=end_ns, **values | columns)

    @classmethod
    def joined(cls, parts: Iterable[Span | Spans]) -> Spans:
        """Return the spans of all parts, in their order. A parent is in the same part, or among spans side by side."""
        blocks: list[Spans] = []
        for is_one, group in groupby(parts, lambda part: isinstance(part, Span)):
            same: Any = list(group)
            blocks += [cls.of(same)] if is_one else same
        blocks = blocks or [cls.of(())]
        first = np.cumsum([0, *map(len, blocks)])

        def shared(name: str, values: str) -> dict[str, Any]:
            before = np.cumsum([0, *(len(getattr(part, values)) for part in blocks)])
            places = [getattr(part, name) + np.int32(at) for part, at in zip(blocks, before, strict=False)]
            return {name: np.concatenate(places), values: [one for part in blocks for one in getattr(part, values)]}

        rows = [np.where(part.parent == NONE, NONE, part.parent + at) for part, at in zip(blocks, first, strict=False)]
        columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in blocks]) for name in _COLUMNS}
        return cls(
            **columns,
            **shared("origin", "origins"),
            **shared("kind", "kinds"),
            **shared("wait", "waits"),
            **shared("attrs", "attributes"),
            parent=np.concatenate(rows),
        )

    def __len__(self) -> int:
        return len(self.kind)

    def rows(self, places: Ints) -> Iterator[Span]:
        """Yield the spans of these rows."""
        parents = self.parent[places]
        outer = iter(self.ids(parents[parents != NONE]))
        times = (self.start_ns, self.end_ns, self.resolution_ns, self.released_ns, self.call)
        shared = (self.origin, self.kind, self.wait, self.attrs)
        others = (parents, self.truncated[places], self.unknown[places])
        columns = (*(column[places] for column in (*times, *shared)), *others)
        for id_, *numbers in zip(self.ids(places), *(column.tolist() for column in columns), strict=True):
            start_ns, end_ns, resolution_ns, released_ns, call, origin, kind, wait, attrs, parent, *flags = numbers
            lane, process, source, _ = self.origins[origin]
            waits_for, cause, cause_kind, period_ns, rendezvous = self.waits[wait]
            yield Span(
                id=id_,
                parent=None if parent == NONE else next(outer),
                kind=self.kinds[kind][0],
                process=process,
                lane=lane,
                start_ns=start_ns,
                end_ns=end_ns,
                detail=self.kinds[kind][1],
                waits_for=waits_for,
                released_ns=None if released_ns == NOT_RELEASED else released_ns,
                rendezvous=f"{rendezvous} {call}" if rendezvous and call != NONE else rendezvous,
                call=None if call == NONE else call,
                cause=cause,
                cause_kind=cause_kind,
                cause_period_ns=period_ns,
                source=source,
                resolution_ns=resolution_ns,
                truncated=flags[0],
                unknown=flags[1],
                attrs=self.attributes[attrs],
            )

    def ids(self, rows: Ints) -> Iterator[str]:
        """Yield the IDs of rows."""
        for origin, number in zip(self.origin[rows].tolist(), self.number[rows].tolist(), strict=True):
            yield self.origins[origin].id if number == NONE else f"{self.origins[origin].id}{number}"

    @cached_property
    def lanes(self) -> list[str]:
        """All lanes; the main lane is the first."""
        return list(dict.fromkeys([MAIN_LANE, *(origin.lane for origin in self.origins)]))

    @cached_property
    def lane(self) -> Ints:
        """Places in `lanes`."""
        places = {lane: place for place, lane in enumerate(self.lanes)}
        return ints([places[origin.lane] for origin in self.origins])[self.origin]

    def where(self, wanted: Flags) -> Spans:
        """Return the spans with a flag."""
        place = np.append(np.where(wanted, np.cumsum(wanted) - 1, NONE), NONE)
        names = ("origin", "kind", "wait", "attrs", *_COLUMNS)
        columns = {name: getattr(self, name)[wanted] for name in names}
        return replace(self, parent=place[self.parent[wanted]], **columns)

    @cached_property
    def is_step(self) -> Flags:
        """True for whole training steps, the first step included; False for other numbered collectives."""
        alone = np.array([wait.rendezvous in ("", STEP_RENDEZVOUS) for wait in self.waits], np.bool_)[self.wait]
        flags: Flags = self.of_kinds(lambda kind: kind.layer == TENSORFLOW) & (self.call != NONE) & alone
        return flags

    def of_origins(self, wanted: Callable[[Origin], bool]) -> Flags:
        """Return True for each span of a wanted origin."""
        flags: Flags = np.array([*map(wanted, self.origins)], np.bool_)[self.origin]
        return flags

    def of_kinds(self, wanted: Callable[[SpanKind], bool]) -> Flags:
        """Return True for each span of a wanted kind."""
        flags: Flags = np.array([wanted(kind) for kind, _ in self.kinds], np.bool_)[self.kind]
        return flags


_COLUMNS = ("number", "start_ns", "end_ns", "resolution_ns", "released_ns", "call", "truncated", "unknown")


def _wait(span: Span) -> Wait:
    rendezvous = span.rendezvous if span.call is None else span.rendezvous.removesuffix(f" {span.call}")
    return Wait(span.waits_for, span.cause, span.cause_kind, span.cause_period_ns, rendezvous)


class Columns:
    """Columns of spans for their attribution; others are those of `Spans`.

    lane, layer, name, cause: places in `lanes`, `LAYERS`, `names` and `causes`. The main lane is lane 0.
    group: number of the span's collective, which is its rendezvous and call.
    members: rows of the members of collectives, by collective and start.
    waits: True for a span that waits for lanes.
    released_ns: time of the release; meaningful where `is_released`.
    """

    def __init__(self, spans: Spans) -> None:
        self.spans, self.lanes, self.lane = spans, spans.lanes, spans.lane
        self.parent, self.start_ns, self.end_ns = spans.parent, spans.start_ns, spans.end_ns
        self.resolution_ns, self.truncated, self.unknown = spans.resolution_ns, spans.truncated, spans.unknown
        names, causes, lanes = Numbers[str](), Numbers[str](), {lane: place for place, lane in enumerate(spans.lanes)}
        self.layer = ints([NUMBER_OF_LAYER[kind.layer] for kind, _ in spans.kinds])[spans.kind]
        self.name = ints([names[kind.text(detail)] for kind, detail in spans.kinds])[spans.kind]
        self.between_marks = spans.truncated | spans.of_kinds(lambda kind: kind.quality == BETWEEN_MARKS)
        self.cause = ints([causes[wait.cause] if wait.cause else NONE for wait in spans.waits])[spans.wait]
        self.period_ns = ints([wait.cause_period_ns if wait.cause else 0 for wait in spans.waits])[spans.wait]
        self.names, self.causes = list(names), list(causes)
        texts = Numbers[str]()
        rendezvous = ints([texts[wait.rendezvous] if wait.rendezvous else NONE for wait in spans.waits])[spans.wait]
        members = np.flatnonzero(rendezvous != NONE)
        members = members[np.lexsort((spans.start_ns[members], spans.call[members], rendezvous[members]))]
        number = np.cumsum(begins_of_runs(spans.call[members], rendezvous[members])) - 1
        self.group, self.members = np.full(len(spans), NONE), members
        self.group[members] = number
        self._entries_ns = distinct(spans.start_ns[members])
        self._entries = number * len(self._entries_ns) + np.searchsorted(self._entries_ns, spans.start_ns[members])
        self._waits_at: Ints = np.cumsum(ints([0, *(len(wait.waits_for) for wait in spans.waits)]))
        self._waits_for = ints([lanes.get(lane, NONE) for wait in spans.waits for lane in wait.waits_for])
        self.waits: Flags = (np.diff(self._waits_at) > 0)[spans.wait]
        self.is_released: Flags = spans.released_ns != NOT_RELEASED
        self.released_ns = np.where(self.is_released, spans.released_ns, 0)

    def __len__(self) -> int:
        return len(self.spans)

    def releasing(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the lanes that release spans, each with the place of the span in `rows`."""
        wait = self.spans.wait[rows]
        sizes = np.diff(self._waits_at)[wait]
        return np.repeat(np.arange(len(rows)), sizes), self._waits_for[places(self._waits_at[wait], sizes)]

    def last_member(self, group: Ints, until_ns: Ints) -> Ints:
        """Return the places in `members` of the last members of collectives that start until a time, if one does."""
        rank = np.searchsorted(self._entries_ns, until_ns, "right")
        return np.searchsorted(self._entries, group * len(self._entries_ns) + rank) - 1


@dataclass(frozen=True, slots=True)
class Trace:
    """All spans of a run on one time axis. The wall time is [start_ns, end_ns) of the main lane."""

    start_ns: int
    end_ns: int
    spans: Spans
    anchors: tuple[ClockAnchor, ...] = ()
    intervals: tuple[Interval, ...] = ()
    not_measured: tuple[NotMeasured, ...] = ()
    startup: tuple[Event, ...] = ()
    teardown: tuple[Event, ...] = ()
    clips: tuple[Clip, ...] = ()  # contradictions that importers corrected

    @property
    def wall_ns(self) -> int:
        """Duration of the window, in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes in the order of their first span."""
        spans = self.spans
        first = np.full(len(spans.lanes), 2 * MOST)
        np.minimum.at(first, spans.lane, spans.start_ns)
        begun = [(lane != MAIN_LANE, at_ns, lane) for lane, at_ns in zip(spans.lanes, first.tolist(), strict=True)]
        return tuple(lane for _, at_ns, lane in sorted(begun) if at_ns != 2 * MOST)


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of the wall time with the span that it belongs to. `span` is None if no span was open."""

    start_ns: int
    end_ns: int
    layer: str
    span: Span | None
    kind: Literal["span", "cause", "unexplained", "unattributed"]
    chain: tuple[str, ...]


SEGMENT_KINDS: tuple[Literal["span", "cause", "unexplained", "unattributed"], ...]
SEGMENT_KINDS = ("span", "cause", "unexplained", "unattributed")

SEGMENT_LAYERS = (*LAYERS, UNATTRIBUTED)


@dataclass(frozen=True, eq=False)
class Segments(Rows[Segment]):
    """Columns of segments from start to end of the window; see `Segment`.

    layer, kind, chain: places in `SEGMENT_LAYERS`, `SEGMENT_KINDS` and `chains`.
    row: place in `spans`, or NONE.
    """

    start_ns: Ints
    end_ns: Ints
    layer: Ints
    row: Ints
    kind: Ints
    chain: Ints
    spans: Spans
    chains: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.start_ns)

    def rows(self, places: Ints) -> Iterator[Segment]:
        """Yield the segments at these places."""
        some = self.where(places)
        rows = np.unique(some.row[some.row != NONE])
        spans = dict(zip(rows.tolist(), self.spans.rows(rows), strict=True))
        columns = (some.start_ns, some.end_ns, some.layer, some.row, some.kind, some.chain)
        for start_ns, end_ns, layer, row, kind, chain in zip(*(column.tolist() for column in columns), strict=True):
            names = SEGMENT_LAYERS[layer], spans.get(row), SEGMENT_KINDS[kind]
            yield Segment(start_ns, end_ns, *names, self.chains[chain])

    def where(self, rows: Ints | Flags) -> Segments:
        """Return the segments of these rows, or with a flag."""
        names = ("start_ns", "end_ns", "layer", "row", "kind", "chain")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def joined(self, *values: Ints) -> Segments:
        """Return the segments, which have no gaps, with neighbours of equal values joined."""
        found = self.where(begins_of_runs(*values))
        return replace(found, end_ns=np.append(found.start_ns[1:], self.end_ns[-1:]))

    @property
    def lane(self) -> Ints:
        """Place of the lane of each segment, the last of its chain, in the lanes of the spans."""
        places = {lane: place for place, lane in enumerate(self.spans.lanes)}
        return ints([places[chain[-1]] for chain in self.chains])[self.chain]


@dataclass(frozen=True, slots=True)
class Attribution:
    """The wall time by layer: sum(layer.ns) + unattributed_ns == wall_ns, always."""

    wall_ns: int
    layers: tuple[LayerTime, ...]
    unattributed_ns: int
    not_measured: tuple[NotMeasured, ...]
    intervals: tuple[Interval, ...]
    clips: tuple[Clip, ...]
    segments: Segments
