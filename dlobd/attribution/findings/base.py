"""The contract of a remedy: it looks at a case, and says what it would take out of the trace, if anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from dlobd.attribution.degrees import degree
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.what_if import Kept, WhatIf
from dlobd.layers import LAYERS
from dlobd.record.resources import CoreWaits, EnvironmentCache
from dlobd.schema import Attribution, Runnable, Segment, Span, Trace

MOST_NAMES = 4
"""So many names of spans are told as evidence."""


@dataclass(frozen=True)
class Case:
    """What a remedy may look at. `core_waits` and `environment_cache` are those members of run.json."""

    evidence: Evidence
    chosen: Runnable
    trace: Trace
    attribution: Attribution
    core_waits: CoreWaits | None
    environment_cache: EnvironmentCache | None

    @cached_property
    def what_if(self) -> WhatIf:
        """The trace, ready to be replayed."""
        return WhatIf(self.trace)

    @cached_property
    def outer(self) -> Mapping[str, Span]:
        """By the id of a span the one that it lies in, as its lane was counted."""
        found: dict[str, Span] = {}
        for lane in self.what_if.lanes.values():
            open_: list[Span] = []
            for nested in lane.nested:
                del open_[nested.depth :]
                if open_:
                    found[nested.span.id] = open_[-1]
                open_.append(nested.span)
        return found

    def spans_around(self, span: Span) -> Iterator[Span]:
        """A span and those that it lies in, from the inside."""
        at: Span | None = span
        while at is not None:
            yield at
            at = self.outer.get(at.id)

    def share(self, ns: int) -> str:
        """`1.234 s of 30.047 s`."""
        return f"{ns / 1e9:.3f} of {self.trace.wall_ns / 1e9:.3f} s"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a remedy says of a case.

    Attributes:
        ns: of the wall, that the cause has.
        kept: what of the trace would be left; None: `saves_ns` bounds it, as the cause is not one of spans.
        uncertain_ns: by how much the boundaries of what is taken out may move.
        rest: as in `dlobd.record.run.Finding`.
    """

    finding: str
    layer: str
    says: str
    ns: int
    evidence: tuple[str, ...]
    remedy: str
    unless: str
    kept: Kept | None = None
    saves_ns: int = 0
    uncertain_ns: int = 0


Remedy = Callable[[Case], Draft | None]


@dataclass
class Taken:
    """The part of the attributed wall that some spans have."""

    ns: int = 0
    uncertain_ns: int = 0
    lengths: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # layer, name, degree, source
    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def add(self, segment: Segment, span: Span) -> None:
        """One more piece of the wall, of that span."""
        length_ns = segment.end_ns - segment.start_ns
        name = span.cause if segment.kind == "cause" else span.name
        key = (segment.layer, name, degree(segment), span.source)
        self.ns += length_ns
        self.uncertain_ns += min(length_ns, span.resolution_ns)
        self.lengths[key] += length_ns
        self.counts[key] += 1

    @property
    def evidence(self) -> tuple[str, ...]:
        """The largest of them, one line each."""
        return tuple(_line(*key, ns, self.counts[key]) for key, ns in self.lengths.most_common(MOST_NAMES))


def taken(case: Case, wanted: Callable[[Span, bool], bool]) -> Taken:
    """What of the wall belongs to wanted spans; the second argument: to the rest of a wait, or to a sleep."""
    found = Taken()
    for segment in case.attribution.segments:
        if segment.span is not None and wanted(segment.span, segment.kind != "span"):
            found.add(segment, segment.span)
    return found


def any_of(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name fits one of several; a star stands for any words."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _line(layer: str, name: str, how: str, source: str, ns: int, count: int) -> str:
    pieces = "1 piece" if count == 1 else f"{count} pieces"
    seen = f"{how}, {source}" if source else how
    return f"{LAYERS[layer].title}, {name}: {ns / 1e9:.3f} s in {pieces} ({seen})"
