"""Median, spread, and the exact confidence interval of a median.

Each value comes from one repeat: a run or a process, never a step of a run. None: missing, and excluded.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from dlobd.measures.statistics import CONFIDENCE

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, quartiles and extremes of `n` values."""

    n: int
    median: float | None
    low: float | None
    high: float | None
    q1: float | None
    q3: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence interval; an infinite value means never. `coverage` is the guaranteed probability
    that the interval contains the true value: 0.969 for six repeats. Too few repeats have no interval, and no coverage.
    """

    value: float
    low: float | None = None
    high: float | None = None
    coverage: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, relative to the value."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)

    def holds(self, value: float) -> bool | None:
        """Return True if the interval contains a value, up to rounding; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low - ROUNDING * abs(value) <= value <= self.high + ROUNDING * abs(value)

    def times(self, factor: float) -> "Estimate":
        """Multiply value and interval by a positive factor."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high, self.coverage)

    def __str__(self) -> str:
        """Format with three significant digits: 39.8 (37.9 to 41.2)."""
        value, low, high = map(_number, (self.value, self.low, self.high))
        return value if self.low is None or low == high == "never" else f"{value} ({low} to {high})"


def spread(values: Iterable[float | None]) -> Spread:
    """Compute the spread of values; quartiles use linear interpolation (numpy's default)."""
    known = _measured(values)
    if not known:
        return Spread(0, None, None, None, None, None)
    q1, middle, q3 = statistics.quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return Spread(len(known), middle, known[0], known[-1], q1, q3)


def fewest_repeats(confidence: float = CONFIDENCE) -> int:
    """Return the smallest number of repeats with an exact interval: 6 for 95 %. The widest exact interval is from the
    minimum to the maximum; it misses the true median with probability 2 / 2^n."""
    return math.ceil(1 - math.log2(1 - confidence))


def median(values: Iterable[float | None], confidence: float = CONFIDENCE) -> Estimate | None:
    """Estimate the median with its exact confidence interval, by the sign test.

    The interval from the k-th lowest to the k-th highest value misses the true median only if fewer than k values lie
    on one side of it. The probability is 2 P(B < k), with B binomial (n, 1/2). `k` is the largest number with a
    coverage of at least `confidence`. Values must be independent, with any distribution (Thompson 1936,
    doi:10.1214/aoms/1177732502).
    """
    known = _measured(values)
    if not known:
        return None
    middle, n = statistics.median(known), len(known)
    k, missed = 0, 0.0
    while missed + 2 * math.comb(n, k) / 2**n <= 1 - confidence:
        missed += 2 * math.comb(n, k) / 2**n
        k += 1
    return Estimate(middle, known[k - 1], known[n - k], 1 - missed) if k else Estimate(middle)


def ratios(above: Iterable[float | None], below: Iterable[float | None]) -> list[float]:
    """Compute the ratio within each repeat; skip repeats without both values."""
    return [a / b for a, b in zip(above, below, strict=True) if a is not None and b]


def ratio(
    above: Iterable[float | None], below: Iterable[float | None], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Estimate the median of `ratios`."""
    return median(ratios(above, below), confidence)


def difference(minuend: Iterable[float | None], subtrahend: Iterable[float | None]) -> Estimate | None:
    """Estimate the median difference within repeats; skip repeats without both values."""
    pairs = zip(minuend, subtrahend, strict=True)
    return median((a - b for a, b in pairs if a is not None and b is not None))


def _measured(values: Iterable[float | None]) -> list[float]:
    return sorted(value for value in values if value is not None)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isinf(value):
        return "never"
    if abs(value) < 0.01:
        return f"{round(value, 3) + 0.0:.3f}"  # + 0.0 turns -0.0 into 0.0
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
