"""The share of a run that the self-test proves: the time in spans that contained a delay. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlobd.faults.injection_log import Injection
from dlobd.schema import Attribution

Named = tuple[str, str]
"""Layer and name of a span."""

HIT = 0.5
"""The least share of a delay that must lie in a span; an overlap at the edge proves nothing."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The wall time of a run without delays, split into spans that delays touched, and the other spans, longest first.

    `asleep_ns`: the part of the rest in waits whose length was read from the run. No work happens there that could be
    delayed.
    """

    wall_ns: int
    touched_ns: int
    untouched_ns: tuple[tuple[Named, int], ...]
    asleep_ns: int

    @property
    def share(self) -> float:
        """The touched share of the wall time."""
        return self.touched_ns / self.wall_ns if self.wall_ns else 0.0


def touched(injected: Iterable[Injection], attribution: Attribution) -> set[Named]:
    """Return the spans that contained a delay."""
    spans = set()
    for injection in injected:
        inside: Counter[Named] = Counter()
        for segment in attribution.segments:
            overlap_ns = min(segment.end_ns, injection.end_ns) - max(segment.start_ns, injection.start_ns)
            if overlap_ns > 0 and segment.span is not None and segment.kind == "span":
                inside[segment.layer, segment.span.name] += overlap_ns
        spans |= {named for named, ns in inside.items() if ns >= HIT * injection.ns}
    return spans


def of_run(attribution: Attribution, known: set[Named]) -> Coverage:
    """Return the coverage of a run by spans of these names. A poll or heartbeat does not belong to its span."""
    spent: Counter[Named] = Counter()
    asleep_ns = 0
    for segment in attribution.segments:
        ns = segment.end_ns - segment.start_ns
        name: str = segment.kind
        if segment.span is not None and segment.kind != "unexplained":
            name = segment.span.cause if segment.kind == "cause" else segment.span.name
            cause = segment.span.cause_kind
            asleep_ns += ns if segment.kind == "cause" and cause is not None and cause.period_is_read else 0
        spent[segment.layer, name] += ns
    untouched: Mapping[Named, int] = {named: ns for named, ns in spent.items() if named not in known}
    rest = sorted(untouched.items(), key=lambda item: (-item[1], item[0]))
    return Coverage(attribution.wall_ns, attribution.wall_ns - sum(untouched.values()), tuple(rest), asleep_ns)
