"""Offset between two clocks, as an interval that contains the true offset. Pure.

A message cannot arrive before it was sent. So a message from a to b bounds b - a from above, and a message from b to a
bounds it from below, for any delay in the network: no symmetry of delays is assumed. Between messages the offset is
modelled as a line, o + r t, with |r| at most `MAX_RATE`. All lines that contradict no message are candidates; the
offset at a time lies between the lowest and the highest candidate at that time.

    offset
      |   v     v            v      each v: no line may pass above it (a message from a to b)
      |  ======================     all lines in between are candidates
      |     ^      ^      ^         each ^: no line may pass below it (a message from b to a)
      +------------------------ time of a

If no candidate is left, one of the clocks was stepped, and a new line begins. Between the last exchange of the old line
and the first exchange of the new line, the interval covers both. A step smaller than the width of the interval is not
detected; it moves the true offset by less than that width.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor

MAX_RATE = 500e-6
"""Largest rate of one clock against the other: the kernel slews by at most 500 ppm (adjtimex), crystals by less."""

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request from a and the response of b: four readings in nanoseconds, each by the clock of its reader."""

    sent_a_ns: int
    received_b_ns: int
    sent_b_ns: int
    received_a_ns: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Interval of the offset: lo_ns <= clock b - clock a <= hi_ns."""

    lo_ns: int
    hi_ns: int

    @property
    def width_ns(self) -> int:
        """Width of the interval: the uncertainty of the offset."""
        return self.hi_ns - self.lo_ns


class Offset:
    """Offset of clock b from clock a. Raises ValueError without an exchange, or if a clock ran backwards."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        ordered = sorted(exchanges, key=lambda exchange: exchange.sent_a_ns)
        if not ordered:
            raise ValueError("no exchange: the offset is unknown")
        for exchange in ordered:
            if exchange.received_a_ns < exchange.sent_a_ns or exchange.sent_b_ns < exchange.received_b_ns:
                raise ValueError(f"a clock ran backwards in {exchange}")
        self.lines: list[Lines] = []
        rest: Sequence[Exchange] = ordered
        while rest:
            count = _longest(rest)
            self.lines.append(Lines(rest[:count]))
            rest = rest[count:]
        self.starts_ns = [lines.start_ns for lines in self.lines]

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Steps of either clock: (earliest, latest) time of each step on clock a, in nanoseconds."""
        return tuple((before.end_ns, after.start_ns) for before, after in pairwise(self.lines))

    def at(self, a_ns: int) -> Bounds:
        """Return the offset at a time of clock a. Lines extend beyond the first and last exchange."""
        index = max(0, bisect_right(self.starts_ns, a_ns) - 1)
        bounds = self.lines[index].at(a_ns)
        if a_ns > self.lines[index].end_ns and index + 1 < len(self.lines):
            after = self.lines[index + 1].at(a_ns)  # the step is between the two lines
            bounds = Bounds(min(bounds.lo_ns, after.lo_ns), max(bounds.hi_ns, after.hi_ns))
        return bounds


def _longest(exchanges: Sequence[Exchange]) -> int:
    """Count the first exchanges that one line can explain, by doubling and bisection."""
    most = 2
    while most < len(exchanges) and Lines(exchanges[:most]).possible:
        most *= 2
    counts = range(1, min(most, len(exchanges)) + 1)
    return bisect_left(counts, True, key=lambda count: not Lines(exchanges[:count]).possible)


class Lines:
    """All lines between the upper and the lower points of some exchanges: for a rate r the constant term lies between
    A(r), convex, and B(r), concave, both piecewise linear. The extremes of o + r t lie at the ends of the possible
    rates, or at the bends.

    base_ns: offset at the first exchange; other offsets are relative to it.
    extremes: rate, lowest and highest constant term.
    """

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.start_ns = exchanges[0].sent_a_ns
        self.end_ns = max(exchange.received_a_ns for exchange in exchanges)
        # relative to the first exchange: floating point keeps all digits of the differences
        self.base_ns = exchanges[0].received_b_ns - exchanges[0].sent_a_ns
        start_ns, base_ns = self.start_ns, self.base_ns
        above = [(float(e.sent_a_ns - start_ns), float(e.received_b_ns - e.sent_a_ns - base_ns)) for e in exchanges]
        below = [(float(e.received_a_ns - start_ns), float(e.sent_b_ns - e.received_a_ns - base_ns)) for e in exchanges]
        self._above, self._below = _hull(above, 1), _hull(below, -1)
        bends = {-MAX_RATE, MAX_RATE}
        for hull in (self._above, self._below):
            slopes = ((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairwise(hull) if x2 > x1)
            bends.update(r for r in slopes if -MAX_RATE < r < MAX_RATE)
        self.extremes = [(r, self._lowest(r), self._highest(r)) for r in self._possible_rates(sorted(bends))]

    @property
    def possible(self) -> bool:
        """True if any candidate line is left."""
        return bool(self.extremes)

    def at(self, a_ns: int) -> Bounds:
        """Return the lowest and highest possible offset at a time."""
        t = float(a_ns - self.start_ns)
        lo = min(lowest + r * t for r, lowest, _ in self.extremes)
        hi = max(highest + r * t for r, _, highest in self.extremes)
        # one nanosecond for rounding errors
        return Bounds(self.base_ns + floor(lo) - 1, self.base_ns + ceil(hi) + 1)

    def _lowest(self, r: float) -> float:
        return max(y - r * x for x, y in self._below)

    def _highest(self, r: float) -> float:
        return min(y - r * x for x, y in self._above)

    def _possible_rates(self, bends: Sequence[float]) -> list[float]:
        gaps = [self._lowest(r) - self._highest(r) for r in bends]  # convex in r; possible where not above 0
        rates = [r for r, gap in zip(bends, gaps, strict=True) if gap <= 0]
        for (r, gap), (s, next_gap) in pairwise(zip(bends, gaps, strict=True)):
            if (gap <= 0) != (next_gap <= 0):  # straight in between, so the root is exact
                rates.append(r + (s - r) * gap / (gap - next_gap))
        return rates


def _hull(points: Iterable[_Point], sign: int) -> list[_Point]:
    """Return the lower hull (sign 1) or the upper hull (sign -1) of points; no other point limits a line."""
    hull: list[_Point] = []
    for x, y in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if hull and hull[-1][0] == x:
            continue
        while len(hull) > 1 and sign * _turn(hull[-2], hull[-1], (x, y)) <= 0:
            hull.pop()
        hull.append((x, y))
    return hull


def _turn(o: _Point, a: _Point, b: _Point) -> float:
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])
