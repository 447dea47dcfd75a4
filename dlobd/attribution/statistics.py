"""How far repeats of one measurement lie apart, and how sure a median is. Pure.

Values are in any unit, one of each repeat: a repeat is a run or a process, never a step of one. What was not measured
is None and is left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95

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
    """A value, with its interval where there are enough repeats for one. Infinite: never.

    coverage: how often, at least, an interval made like this one holds the truth; 0.969 for six repeats. None, like
        `low` and `high`, without an interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    coverage: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width, as a share of the value."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)

    def holds(self, value: float) -> bool | None:
        """Whether a value is inside, to within the rounding of floats; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low - ROUNDING * abs(value) <= value <= self.high + ROUNDING * abs(value)

    def times(self, factor: float) -> Estimate:
        """In another unit; the factor is positive."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high, self.coverage)

    def __str__(self) -> str:
        """Three digits each, of small values three decimals: 39.8 (37.9 to 41.2)."""
        value, low, high = map(_number, (self.value, self.low, self.high))
        return value if self.low is None or low == high == "never" else f"{value} ({low} to {high})"


def measured(values: Iterable[float | None]) -> list[float]:
    """Those that are not None, in rising order."""
    return sorted(value for value in values if value is not None)


def spread(values: Iterable[float | None]) -> Spread:
    """The values' spread; quartiles by linear interpolation between the values (numpy's default)."""
    known = measured(values)
    if not known:
        return Spread(0, None, None, None, None, None)
    if len(known) == 1:
        only = known[0]
        return Spread(1, only, only, only, only, only)
    q1, median, q3 = statistics.quantiles(known, n=4, method="inclusive")
    return Spread(len(known), median, known[0], known[-1], q1, q3)


def fewest(q: float) -> int:
    """So many values are needed for their maximum to be, with 95 % confidence, no less than quantile `q` of what they
    are drawn from: all of `n` independent ones lie below it with probability q^n."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(q))


def element(ordered: Sequence[int], q: float) -> int | None:
    """Element floor(`q` n), counted from 0, of `n` values in rising order; None without values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def quantile(ordered: Sequence[int], q: float) -> int | None:
    """The same, and None for fewer than `fewest(q)` values: it would say no more than their maximum."""
    return element(ordered, q) if len(ordered) >= fewest(q) else None


def fewest_repeats(confidence: float = CONFIDENCE) -> int:
    """So few repeats can give an interval of this confidence, 6 for 95 %: of `n` values all lie on one side of the
    truth with probability 2 / 2^n, and no exact interval is wider than from the lowest to the highest."""
    return math.ceil(1 - math.log2(1 - confidence))


def median(values: Iterable[float | None], confidence: float = CONFIDENCE) -> Estimate | None:
    """The median with its exact interval between two of the values, by the sign test (Thompson 1936,
    doi:10.1214/aoms/1177732502).

    The k-th lowest and the k-th highest miss the median of what the values are drawn from only if fewer than k of them
    lie on one side of it, which has probability 2 P(B < k), with B binomial (n, 1/2). Nothing is assumed of the
    distribution; the values are independent. `k` is the largest for which the coverage is not below `confidence`.
    """
    known = measured(values)
    if not known:
        return None
    middle, n = statistics.median(known), len(known)
    k, missed = 0, 0.0
    while missed + 2 * math.comb(n, k) / 2**n <= 1 - confidence:
        missed += 2 * math.comb(n, k) / 2**n
        k += 1
    return Estimate(middle, known[k - 1], known[n - k], 1 - missed) if k else Estimate(middle)


def ratios(above: Iterable[float | None], below: Iterable[float | None]) -> list[float]:
    """The ratio within each repeat.

    Args:
        above, below: of the same repeats in the same order; one that lacks either is left out.
    """
    return [a / b for a, b in zip(above, below, strict=True) if a is not None and b]


def ratio(
    above: Iterable[float | None], below: Iterable[float | None], confidence: float = CONFIDENCE
) -> Estimate | None:
    """The median of `ratios`, as `median` has it."""
    return median(ratios(above, below), confidence)


def difference(
    from_: Iterable[float | None], taken: Iterable[float | None], confidence: float = CONFIDENCE
) -> Estimate | None:
    """The median of `from_` less `taken` within repeats; see `ratios`, `median`."""
    pairs = zip(from_, taken, strict=True)
    return median((a - b for a, b in pairs if a is not None and b is not None), confidence)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isinf(value):
        return "never"
    if abs(value) < 0.01:
        return f"{round(value, 3) + 0.0:.3f}"  # + 0.0: without a sign before a zero
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
