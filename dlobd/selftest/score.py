"""Truth against attribution: which layers had each injected interval in the attributed wall. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlobd.faults.injection_log import Injection
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import Attribution, Segment
from dlobd.selftest.injection_points import POINTS, Point

UNEXPLAINED = "unexplained"
"""Time of whatever layer that no evidence explains: it does not count as recovered."""

ELSEWHERE = "another part"
"""Time of the right layer, but of another span than the one that was delayed: it does not count as recovered either."""

BLAMED = (*LAYERS, ELSEWHERE, UNEXPLAINED, UNATTRIBUTED)

RIGHT, WRONG = 0.95, 0.02
"""The least share of an injected interval in its own layer, and the largest in any other."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One injected delay and what attribution made of it: nanoseconds by layer, which sum to `injected.ns`."""

    run: str
    injected: Injection
    blamed: Mapping[str, int]

    @property
    def layer(self) -> str:
        """The layer that has to be blamed."""
        return POINTS[self.injected.point].layer

    @property
    def recovered_ns(self) -> int:
        """What the right layer got."""
        return self.blamed.get(self.layer, 0)

    @property
    def ok(self) -> bool:
        """Whether it is within the target."""
        wrong = [ns for layer, ns in self.blamed.items() if layer != self.layer]
        return self.recovered_ns >= RIGHT * self.injected.ns and max(wrong, default=0) <= WRONG * self.injected.ns


@dataclass(frozen=True, slots=True)
class Line:
    """recovered = slope x injected + intercept, over a layer's delays; None where all were of one size."""

    delays: int
    injected_ns: int
    recovered_ns: int
    slope: float | None
    intercept_ns: float | None


def blame(injected: Injection, attribution: Attribution, run: str) -> Recovery:
    """What attribution says of the time in which a delay was injected; outside the window it is unattributed."""
    blamed: Counter[str] = Counter()
    point = POINTS[injected.point]
    for segment in attribution.segments:
        overlap_ns = min(segment.end_ns, injected.end_ns) - max(segment.start_ns, injected.start_ns)
        if overlap_ns > 0:
            blamed[_blamed(point, segment)] += overlap_ns
    outside_ns = injected.ns - blamed.total()
    if outside_ns:
        blamed[UNATTRIBUTED] += outside_ns
    return Recovery(run, injected, dict(blamed))


def _blamed(point: Point, segment: Segment) -> str:
    if segment.kind == "unexplained":
        return UNEXPLAINED
    named = segment.span.name if segment.span else ""
    return ELSEWHERE if segment.layer == point.layer and point.part not in ("", named) else segment.layer


def confusion(found: Iterable[Recovery]) -> dict[str, dict[str, int]]:
    """Layer that was delayed -> who was blamed -> nanoseconds, in the order of the layers."""
    total: dict[str, Counter[str]] = {}
    for one in found:
        total.setdefault(one.layer, Counter()).update(one.blamed)
    return {
        layer: {name: total[layer][name] for name in BLAMED if total[layer][name]} for layer in LAYERS if layer in total
    }


def lines(found: Sequence[Recovery]) -> dict[str, Line]:
    """The regression of each layer."""
    fitted = {}
    for layer in LAYERS:
        own = [one for one in found if one.layer == layer]
        if not own:
            continue
        injected = [float(one.injected.ns) for one in own]
        recovered = [float(one.recovered_ns) for one in own]
        line = (
            statistics.linear_regression(injected, recovered)
            if len({one.injected.asked_ns for one in own}) > 1
            else None
        )
        fitted[layer] = Line(
            len(own),
            sum(one.injected.ns for one in own),
            sum(one.recovered_ns for one in own),
            line.slope if line else None,
            line.intercept if line else None,
        )
    return fitted


def missing(planned: Mapping[str, Sequence[float]], injected: Iterable[Injection]) -> list[str]:
    """The points of a plan at which fewer delays were made than planned."""
    made = Counter(one.point for one in injected)
    return [point for point, seconds in planned.items() if made[point] < len(seconds)]
