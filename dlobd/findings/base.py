"""Types of rules: a rule reads the context of a run, and returns a candidate finding or None."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dlobd.attribution.attribute import quality
from dlobd.attribution.trace import SEGMENT_KINDS, Attribution, Segment, Span, Trace
from dlobd.attribution.what_if import Retained, WhatIf
from dlobd.columns import NONE, Flags, Ints, starts_of_runs
from dlobd.evidence.evidence import Evidence
from dlobd.layers import LAYERS
from dlobd.measures.core_waits import Carrier, Carriers
from dlobd.record.resources import CoreWaits, EnvironmentCache
from dlobd.schema import Runnable
from dlobd.spans import SpanKind

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
        return carrier.waited_ns(start_ns, end_ns) if isinstance(carrier, Carrier) else 0

    @cached_property
    def _outer(self) -> list[tuple[Ints, Ints]]:
        """Rows of the spans of each depth, from the second on, with the rows of the spans around them after
        normalisation."""
        found = self.what_if.lanes.nested
        order = np.argsort(found.depth, kind="stable")
        levels = np.split(order, np.searchsorted(found.depth[order], np.arange(1, found.depth.max(initial=0) + 1)))
        return [(found.row[level], found.row[found.outer[level]]) for level in levels[1:]]

    def around(self, *wanted: SpanKind) -> Ints:
        """Return for each span the row of the innermost span of these kinds around it, or itself; NONE without one."""
        here = self.trace.spans.of_kinds(lambda kind: any(kind is one for one in wanted))
        found = np.where(here, np.arange(len(here)), NONE)
        for row, outer in self._outer:
            found[row] = np.where(here[row], row, found[outer])
        return found

    def time(self, ns: int) -> str:
        """Format a time with its percentage of the wall time: `3.2 s (9.4 %)`."""
        return f"{duration(ns)} ({100 * ns / self.trace.wall_ns:.1f} %)"


Condition = Callable[[Context], bool]

Advice = Mapping[str, Condition]
"""Text of a change that saves time -> the condition that this change helps the run."""


@dataclass(frozen=True, slots=True)
class WallShare:
    """The wall time of a cause, such as a selection of spans, and the uncertainty of its boundaries.

    evidence: one line for each of the largest times of spans: layer, span, time, quality and source.
    """

    ns: int
    uncertain_ns: int
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding before its bound is computed by a replay; see `dlobd.record.run.Finding`.

    remedy: change that helps each run with the finding; empty if there is only advice.
    retain: retained share of each span; None: all of `share` is the bound, because the cause is not a set of spans.
    """

    finding: str
    layer: str
    says: str
    share: WallShare
    remedy: str
    unless: str
    advice: Advice = field(default_factory=dict)
    retain: Retained | None = None


Finder = Callable[[Context], Candidate | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selection of spans: flags of spans whose own work counts, and of spans whose waits and sleeps count."""

    own: Flags
    waits: Flags

    def retained(self, kept: Ints | int = 0, of: Ints | int = 1) -> Retained:
        """Return shares that keep `kept / of` of the selected time."""
        kept, of = np.broadcast_to(kept, self.own.shape), np.broadcast_to(of, self.own.shape)
        return Retained(np.where(self.own, kept, of), np.where(self.waits, kept, of), of)


def wall_share(context: Context, wanted: Wanted, keeps_core_waits: bool = False) -> WallShare:
    """Sum the wall time of wanted spans, without their waits for a core if they are kept."""
    segments, spans = context.attribution.segments, context.trace.spans
    own, waits = (np.append(flags, False)[segments.row] for flags in (wanted.own, wanted.waits))
    some = segments.where(np.where(segments.kind == SEGMENT_KINDS.index("span"), own, waits))
    lengths_ns = some.end_ns - some.start_ns
    waited_ns = 0
    if keeps_core_waits:
        waited_ns = sum(context.waited_ns(one.span, one.start_ns, one.end_ns) for one in some if one.span)
    uncertain_ns = int(np.minimum(lengths_ns, spans.resolution_ns[some.row]).sum())
    columns = (some.kind, spans.kind[some.row], spans.wait[some.row], spans.origin[some.row], spans.truncated[some.row])
    order = np.lexsort(columns)
    at = starts_of_runs(*(column[order] for column in columns))
    sums_ns = np.add.reduceat(lengths_ns[order], at) if len(at) else at
    counts = np.diff(np.append(at, len(order)))
    first = np.minimum.reduceat(order, at) if len(at) else at
    total_ns: Counter[tuple[str, str, str, str]] = Counter()
    pieces: Counter[tuple[str, str, str, str]] = Counter()
    by_first = np.argsort(first)
    values = sums_ns[by_first].tolist(), counts[by_first].tolist()
    for one, ns, count in zip(some.where(first[by_first]), *values, strict=True):
        assert one.span is not None
        name = one.span.cause if one.kind == "cause" else one.span.name
        key = one.layer, name, quality(one), one.span.source
        total_ns[key] += ns
        pieces[key] += count
    evidence = tuple(_line(key, ns, pieces[key]) for key, ns in total_ns.most_common(MOST_NAMES))
    return WallShare(int(lengths_ns.sum()) - waited_ns, uncertain_ns, evidence)


def _line(key: tuple[str, str, str, str], ns: int, count: int) -> str:
    layer, name, how, source = key
    pieces = "1 piece" if count == 1 else f"{count} pieces"
    origin = f"{how}, {source}" if source else how
    return f"{LAYERS[layer].title}, {name}: {ns / 1e9:.3f} s in {pieces} ({origin})"
