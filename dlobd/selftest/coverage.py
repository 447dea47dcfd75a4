"""How much of a run is proved: the share of the wall in spans that some delay was put into. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlobd.schema import Attribution
from dlobd.selftest.truth import Injection

Named = tuple[str, str]
"""Layer and name of a span."""

HIT = 0.5
"""A span is touched by a delay that lies in it for this share of its length at least: an edge proves nothing."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of a run without delays: its wall, what lies in spans that delays touched, and the rest, the largest first.

    asleep_ns: of the rest, waits whose length was read from the run: nothing is done in them that could be delayed."""

    wall_ns: int
    touched_ns: int
    untouched_ns: tuple[tuple[Named, int], ...]
    asleep_ns: int

    @property
    def share(self) -> float:
        """Of the wall."""
        return self.touched_ns / self.wall_ns if self.wall_ns else 0.0


def touched(injected: Iterable[Injection], attribution: Attribution) -> set[Named]:
    """The spans that delays were put into."""
    found = set()
    for one in injected:
        inside: Counter[Named] = Counter()
        for segment in attribution.segments:
            overlap_ns = min(segment.end_ns, one.end_ns) - max(segment.start_ns, one.start_ns)
            if overlap_ns > 0 and segment.span is not None and segment.kind == "span":
                inside[segment.layer, segment.span.name] += overlap_ns
        found |= {named for named, ns in inside.items() if ns >= HIT * one.ns}
    return found


def of_run(attribution: Attribution, known: set[Named]) -> Coverage:
    """How much of a run lies in spans of these names. A poll or heartbeat is no part of the span that it ends."""
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
