"""Types of rules: a rule reads the context of a run, and returns a candidate finding or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dlobd.attribution.attribute import quality
from dlobd.attribution.trace import Attribution, Segment, Span, Trace
from dlobd.attribution.what_if import Retain, WhatIf
from dlobd.evidence.evidence import Evidence
from dlobd.layers import LAYERS
from dlobd.measures.lane_threads import Carrier, Carriers
from dlobd.record.resources import CoreWaits, EnvironmentCache
from dlobd.schema import Runnable

MOST_NAMES = 4
"""Largest number of span names in the evidence of a finding."""


def duration(ns: int) -> str:
    """Format a duration: `3.2 s`, or `63 ms` below 0.1 s."""
    return f"{ns / 1e9:.1f} s" if ns >= 100_000_000 else f"{ns / 1e6:.0f} ms"


@dataclass(frozen=True)
class Context:
    """Input of a rule. `core_waits` and `environment_cache` are members of run.json."""

    evidence: Evidence
    chosen: Runnable
    trace: Trace
    attribution: Attribution
    core_waits: CoreWaits | None
    environment_cache: EnvironmentCache | None

    @cached_property
    def what_if(self) -> WhatIf:
        """The trace, ready for replays."""
        return WhatIf(self.trace)

    @cached_property
    def carriers(self) -> Carriers:
        """The threads that execute the lanes."""
        return Carriers(self.evidence)

    def waited_ns(self, span: Span, start_ns: int, end_ns: int) -> int:
        """Return the wait for a core in a part of a span; 0 if its thread is unknown."""
        carrier = self.carriers.carrier(Segment(start_ns, end_ns, span.layer, span, "span", ()))
        return carrier.waiting_ns(start_ns, end_ns) if isinstance(carrier, Carrier) else 0

    @cached_property
    def outer(self) -> Mapping[str, Span]:
        """The parent of each span after normalisation of its lane, by the ID of the span."""
        parents: dict[str, Span] = {}
        for lane in self.what_if.lanes.values():
            open_: list[Span] = []
            for nested in lane.nested:
                del open_[nested.depth :]
                if open_:
                    parents[nested.span.id] = open_[-1]
                open_.append(nested.span)
        return parents

    def spans_around(self, span: Span) -> Iterator[Span]:
        """Yield a span and its ancestors, innermost first."""
        ancestor: Span | None = span
        while ancestor is not None:
            yield ancestor
            ancestor = self.outer.get(ancestor.id)

    def time(self, ns: int) -> str:
        """Format a time with its percentage of the wall time: `3.2 s (9.4 %)`."""
        return f"{duration(ns)} ({100 * ns / self.trace.wall_ns:.1f} %)"


Condition = Callable[[Context], bool]

Advice = Mapping[str, Condition]
"""Text of a change that saves time -> the condition that this change helps the run."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding before its bound is computed by a replay; see `dlobd.record.run.Finding`.

    remedy: change that helps each run with the finding; empty if there is only advice.
    retain: retained share of each span; None: `saves_ns` is the bound, because the cause is not a set of spans.
    uncertain_ns: uncertainty of the boundaries of the removed time.
    """

    finding: str
    layer: str
    says: str
    ns: int
    evidence: tuple[str, ...]
    remedy: str
    unless: str
    advice: Advice = field(default_factory=dict)
    retain: Retain | None = None
    saves_ns: int = 0
    uncertain_ns: int = 0


Finder = Callable[[Context], Candidate | None]


@dataclass
class WallShare:
    """The wall time of a selection of spans."""

    ns: int = 0
    uncertain_ns: int = 0
    lengths: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # layer, name, quality, source
    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def add(self, segment: Segment, span: Span, waited_ns: int) -> None:
        """Add a segment that belongs to `span`, without a part that has another cause."""
        length_ns = segment.end_ns - segment.start_ns
        name = span.cause if segment.kind == "cause" else span.name
        key = (segment.layer, name, quality(segment), span.source)
        self.ns += length_ns - waited_ns
        self.uncertain_ns += min(length_ns, span.resolution_ns)
        self.lengths[key] += length_ns
        self.counts[key] += 1

    @property
    def evidence(self) -> tuple[str, ...]:
        """One line for each of the largest times: layer, span, time, quality and source."""
        lines = []
        for key, ns in self.lengths.most_common(MOST_NAMES):
            layer, name, how, source = key
            count = self.counts[key]
            pieces = "1 piece" if count == 1 else f"{count} pieces"
            origin = f"{how}, {source}" if source else how
            lines.append(f"{LAYERS[layer].title}, {name}: {ns / 1e9:.3f} s in {pieces} ({origin})")
        return tuple(lines)


def wall_share(context: Context, wanted: Callable[[Span, bool], bool], keeps_core_waits: bool = False) -> WallShare:
    """Sum the wall time of wanted spans, without their waits for a core if they are kept. `wanted` has the arguments of
    `Retain`."""
    share = WallShare()
    for segment in context.attribution.segments:
        if segment.span is not None and wanted(segment.span, segment.kind != "span"):
            bounds = (segment.start_ns, segment.end_ns)
            share.add(segment, segment.span, context.waited_ns(segment.span, *bounds) if keeps_core_waits else 0)
    return share
