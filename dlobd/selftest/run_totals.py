"""Figures of whole runs: layer totals compared with controls, and the time in spans that contained a delay. Pure.

Later effects of a delay, such as a missed heartbeat, show only in the totals. Totals are noisy: each block gives one
difference, and six blocks give a confidence interval. A control has the same delays with duration 0, and so the same
cost of the injector.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlobd.attribution.trace import Attribution
from dlobd.compare import median as medians
from dlobd.compare.median import Estimate
from dlobd.faults.injection_log import Injection
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.score import UNEXPLAINED

Named = tuple[str, str]
"""Layer and name of a span."""

HIT = 0.5
"""Smallest fraction of a delay that must lie in a span; a smaller overlap proves nothing."""


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Injected and attributed nanoseconds of each layer in one run."""

    way: str
    block: int
    injected: Mapping[str, int]
    attributed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Total:
    """Injected and added time of a layer, for a way of running: one value per block. Added time: run minus control."""

    way: str
    layer: str
    injected_ns: tuple[int, ...]
    added_ns: tuple[int, ...]

    @property
    def errors_ns(self) -> tuple[int, ...]:
        return tuple(added - injected for added, injected in zip(self.added_ns, self.injected_ns, strict=True))

    @property
    def error_ns(self) -> Estimate:
        """Median error, with its exact confidence interval if there are enough blocks."""
        error = medians.median(self.errors_ns)
        assert error is not None
        return error

    @property
    def holds(self) -> bool | None:
        """True if the interval contains 0; None without an interval."""
        return self.error_ns.holds(0)


def totals_of(way: str, block: int, injected: Iterable[Injection], attribution: Attribution) -> RunTotals:
    """Return the totals of a run; unexplained time belongs to no layer."""
    into: Counter[str] = Counter()
    for injection in injected:
        point = POINTS[injection.point]
        into[point.layer] += injection.asked_ns if point.whole_run else injection.ns
    attributed: Counter[str] = Counter()
    for segment in attribution.segments:
        attributed[UNEXPLAINED if segment.kind == "unexplained" else segment.layer] += segment.end_ns - segment.start_ns
    return RunTotals(way, block, dict(into), dict(attributed))


def compared(delayed: Sequence[RunTotals], controls: Sequence[RunTotals]) -> list[Total]:
    """Return the totals of each layer in each way, over the blocks with a run with delays and a control."""
    control = {(run.way, run.block): run for run in controls}
    pairs = [(run, control[run.way, run.block]) for run in delayed if (run.way, run.block) in control]
    rows = []
    for way in dict.fromkeys(run.way for run, _ in pairs):
        own = [pair for pair in pairs if pair[0].way == way]
        for layer in (*LAYERS, UNEXPLAINED, UNATTRIBUTED):
            if any(layer in run.attributed for pair in own for run in pair):
                injected = tuple(run.injected.get(layer, 0) - other.injected.get(layer, 0) for run, other in own)
                added = tuple(run.attributed.get(layer, 0) - other.attributed.get(layer, 0) for run, other in own)
                rows.append(Total(way, layer, injected, added))
    return rows


# ---- coverage


@dataclass(frozen=True, slots=True)
class Coverage:
    """Wall time of a run without delays, split into touched spans (delayed in other runs) and the other spans.

    `asleep_ns`: the part of the other spans in waits whose duration was read from the run. No work happens there that
    could be delayed.
    """

    wall_ns: int
    touched_ns: int
    untouched_ns: tuple[tuple[Named, int], ...]
    asleep_ns: int


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


def coverage_of(attribution: Attribution, known: set[Named]) -> Coverage:
    """Return the coverage of a run by spans of these names; their polls and heartbeats do not count."""
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
