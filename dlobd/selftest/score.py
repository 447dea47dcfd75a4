"""Score of a delay, and figures of whole runs, from the layers that the breakdown blames. Pure.

A delay is judged for the time in which it held up the job. On a busy machine, a process may still compute while
the daemon that it needs next is stopped, or it may be stopped too late, inside a call of another layer. `held_up` uses
the log of the RPC client, which is independent of the breakdown. A hidden delay must be repeated.

Later effects of a delay, such as a missed heartbeat, show only in the totals of a run. Totals are noisy: each block
gives one difference, and six blocks give a confidence interval. A control has the same delays with duration 0, and so
the same cost of the injector.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dlobd.attribution.trace import Attribution
from dlobd.compare.median import Estimate, median
from dlobd.evidence.rpc import Call
from dlobd.faults.injection_log import Injection
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.selftest.injection_points import POINTS

UNEXPLAINED = "unexplained"
"""Label of unexplained time, which never counts as recovered."""

ELSEWHERE = "another part"
"""Label of time in the right layer, but not in the delayed span; it does not count as recovered."""

BLAMED = (*LAYERS, ELSEWHERE, UNEXPLAINED, UNATTRIBUTED)

RIGHT, WRONG = 0.95, 0.02
"""Smallest fraction of a delay in its own layer, and largest fraction in any other layer."""

HELD_UP = 0.5
"""Smallest fraction of a delay that must have held up the job; a smaller fraction proves nothing."""

HIT = 0.5
"""Smallest fraction of a delay that must lie in a span; a smaller overlap proves nothing."""

Verdict = Literal["found", "hidden", "wrong"]

Named = tuple[str, str]
"""Layer and name of a span."""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Part of a delay that held up the job, [start_ns, end_ns). `inside`: the RPC call in which a JVM was stopped."""

    start_ns: int
    end_ns: int
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Delay and its time in the breakdown: `blamed` has nanoseconds per layer, which sum to `held_ns`.

    moved_ns: the part in spans of other layers that began or ended during the delay, because the critical path moved.
    """

    run: str
    injected: Injection
    held: HeldUp
    blamed: Mapping[str, int]
    moved_ns: int = 0

    @property
    def layer(self) -> str:
        """Layer that the breakdown must blame."""
        return POINTS[self.injected.point].layer

    @property
    def held_ns(self) -> int:
        """Time during which the delay held up the job."""
        return self.held.end_ns - self.held.start_ns

    @property
    def recovered_ns(self) -> int:
        """Time in the right layer."""
        return self.blamed.get(self.layer, 0)

    @property
    def verdict(self) -> Verdict:
        """`found`: the delay is in its own layer, within RIGHT and WRONG. `hidden`: the run did not wait for the delay.
        `wrong`: all other results."""
        others = [ns for layer, ns in self.blamed.items() if layer != self.layer]
        if self.held_ns < HELD_UP * self.injected.ns:
            return "hidden"
        if self.recovered_ns >= RIGHT * self.held_ns and max(others, default=0) <= WRONG * self.held_ns:
            return "found"
        return "hidden" if self.held.inside or sum(others) - self.moved_ns <= WRONG * self.held_ns else "wrong"

    @property
    def ok(self) -> bool:
        return self.verdict == "found"


@dataclass(frozen=True, slots=True)
class Line:
    """Line recovered = slope x held up + intercept, over the delays of a layer; not fitted if all have one duration."""

    delays: int
    held_ns: int
    recovered_ns: int
    slope: float | None
    intercept_ns: float | None


def held_up(injected: Injection, calls: Sequence[Call] | None) -> HeldUp:
    """Return the part of a delay that held up the job, by the RPC calls in the client's log; all of it without a log.

    A stopped daemon holds up its client from the call that waits at the end of the delay, or not at all. A stopped JVM
    of Spark must not be inside a call, which would look like a slow daemon."""
    start_ns, end_ns = injected.start_ns, injected.end_ns
    if calls is None:
        return HeldUp(start_ns, end_ns)
    layer = POINTS[injected.point].layer
    pending = [call for call in calls if call.start_ns < end_ns <= call.end_ns]
    if layer == "spark":
        return HeldUp(start_ns, end_ns, next((call.method for call in pending if call.start_ns < start_ns), ""))
    first_ns = min((call.start_ns for call in pending if call.layer == layer), default=end_ns)
    return HeldUp(max(start_ns, first_ns), end_ns)


def blame(injected: Injection, attribution: Attribution, run: str, calls: Sequence[Call] | None = None) -> Recovery:
    """Return the layers that the breakdown blames for a delay; time outside of the window counts as unattributed."""
    held = held_up(injected, calls)
    blamed: Counter[str] = Counter()
    moved_ns = 0
    point = POINTS[injected.point]
    for segment in attribution.segments:
        overlap_ns = min(segment.end_ns, held.end_ns) - max(segment.start_ns, held.start_ns)
        if overlap_ns > 0:
            name, span = segment.layer, segment.span
            if segment.kind == "unexplained":
                name = UNEXPLAINED
            elif name == point.layer and point.part not in ("", span.name if span else ""):
                name = ELSEWHERE
            blamed[name] += overlap_ns
            if name in LAYERS and name != point.layer and span:
                edge_within = any(held.start_ns < edge_ns < held.end_ns for edge_ns in (span.start_ns, span.end_ns))
                moved_ns += overlap_ns * edge_within
    outside_ns = held.end_ns - held.start_ns - blamed.total()
    if outside_ns:
        blamed[UNATTRIBUTED] += outside_ns
    return Recovery(run, injected, held, dict(blamed), moved_ns)


def confusion(recoveries: Iterable[Recovery]) -> dict[str, dict[str, int]]:
    """Return nanoseconds by delayed layer and blamed layer, in the order of the layers."""
    total: dict[str, Counter[str]] = {}
    for recovery in recoveries:
        total.setdefault(recovery.layer, Counter()).update(recovery.blamed)
    return {
        layer: {name: total[layer][name] for name in BLAMED if total[layer][name]} for layer in LAYERS if layer in total
    }


def lines(recoveries: Sequence[Recovery]) -> dict[str, Line]:
    """Fit the regression line of each layer."""
    fitted = {}
    for layer in LAYERS:
        own = [recovery for recovery in recoveries if recovery.layer == layer]
        if not own:
            continue
        held, recovered = ([getattr(one, name) for one in own] for name in ("held_ns", "recovered_ns"))
        slope = intercept = None
        if len({recovery.injected.asked_ns for recovery in own}) > 1:
            slope, intercept = statistics.linear_regression(held, recovered)
        fitted[layer] = Line(len(own), sum(held), sum(recovered), slope, intercept)
    return fitted


def missing(planned: Mapping[str, Sequence[float]], injected: Iterable[Injection]) -> list[str]:
    """Return the points of a plan with fewer delays than planned."""
    count = Counter(injection.point for injection in injected)
    return [point for point, seconds in planned.items() if count[point] < len(seconds)]


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
        error = median(self.errors_ns)
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
