"""Whether one side's runs are faster than another's, of each quantity of a family: verdict, effect, interval. Pure.

A family is what is asked at once, such as all layers of a run. Of all of its quantities together a difference is seen
where there is none with a probability of `ALPHA` at most: their p-values are Holm's (1979, "A Simple Sequentially
Rejective Multiple Test Procedure"), their intervals hold all at once, each at 1 - `ALPHA` over the number of
quantities. Where Holm's test, which sees more, has ruled out zero, the interval ends there (Strassburger and Bretz
2008, "Compatible simultaneous lower confidence bounds for the Holm procedure").
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from dlobd.attribution import permutation, power
from dlobd.attribution.permutation import Sides

ALPHA = 0.05
"""Two-sided."""

MARGIN = 0.05
"""Of the first side's mean: a difference that is less does not matter to who compares, unless told."""

LEAST = 0.1
"""Of the wall's margin: what a layer differs by, and is less, does not matter either. A layer of milliseconds may
double in a job of a minute."""

K = TypeVar("K")

Verdict = Literal["faster", "slower", "equivalent", "inconclusive"]
Growth = Literal["grown", "kept", "undecided"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """An interval's ends."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A quantity of the second side against the first. Times are means, in nanoseconds; shares are of `first_ns`.

    runs: of each side.
    difference, share: intervals of `difference_ns` and of it as a share; None where there are too few runs, the latter
        also where some runs have none of that quantity.
    confidence: what the intervals have exactly, each by itself; None without.
    p: adjusted for the family.
    margin_ns: a difference that is less does not matter.
    smallest_ns: the smallest difference that these data could have shown with `power.POWER`; None: none.
    runs_needed: so many runs a side show a difference of `margin_ns` with that power, or where there were as many, have
        an interval no wider than it; None: not known, or more than `power.MOST_RUNS`.
    """

    verdict: Verdict
    first_ns: float
    second_ns: float
    runs: tuple[int, int]
    difference: Bounds | None
    share: Bounds | None
    confidence: float | None
    p: float
    exact: bool
    margin_ns: float
    smallest_ns: float | None
    runs_needed: int | None

    @property
    def difference_ns(self) -> float:
        """Second minus first."""
        return self.second_ns - self.first_ns

    @property
    def difference_share(self) -> float | None:
        """Of the first; None where that is zero."""
        return self.difference_ns / self.first_ns if self.first_ns else None


def compare(family: Mapping[K, Sides], margin: float = MARGIN, least_ns: float = 0.0) -> dict[K, Compared]:
    """Each quantity of the family, in its order.

    Args:
        margin: a difference of a smaller share of the first side does not matter.
        least_ns: nor does one of fewer nanoseconds.
    """
    tests = {name: permutation.test(sides) for name, sides in family.items()}
    adjusted = holm([test.p for test in tests.values()])
    alpha = ALPHA / len(family) if family else ALPHA
    return {
        name: _compared(sides, tests[name], p, alpha, margin, least_ns)
        for (name, sides), p in zip(family.items(), adjusted, strict=True)
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order of the given: one that is `ALPHA` or less is significant in its family."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def growth(one: Compared, margin: float, least_ns: float = 0.0) -> Growth:
    """Whether the second side is above the first by more than a share `margin` of it and more than `least_ns`: surely
    so, surely not, or neither. The intervals decide, never the means."""
    if one.difference is None:
        return "undecided"
    # where there is no interval of shares, the first side's mean is taken as known
    share = one.share or _over(one.difference, one.first_ns)
    if share.low > margin and one.difference.low > least_ns:
        return "grown"
    return "kept" if share.high <= margin or one.difference.high <= least_ns else "undecided"


def _compared(sides: Sides, test: permutation.Test, p: float, alpha: float, margin: float, least_ns: float) -> Compared:
    first_ns, second_ns = statistics.fmean(sides.first), statistics.fmean(sides.second)
    differs = p <= ALPHA
    difference = _bounds(test.interval(alpha), 0.0, second_ns - first_ns, differs)
    ratio = _bounds(test.ratio_interval(alpha), 1.0, second_ns / first_ns if first_ns else 1.0, differs)
    share = Bounds(ratio.low - 1, ratio.high - 1) if ratio else None
    margin_ns = max(margin * first_ns, least_ns)
    verdict: Verdict = "inconclusive"
    if differs:
        verdict = "faster" if second_ns < first_ns else "slower"
    elif _inside(share, margin) or _inside(difference, least_ns):
        verdict = "equivalent"
    return Compared(
        verdict, first_ns, second_ns, sides.sizes, difference, share,
        permutation.confidence(test.relabellings, alpha), p, test.exact, margin_ns,
        power.smallest_ns(sides, alpha), _needed(sides, margin_ns, alpha),
    )  # fmt: skip


def _needed(sides: Sides, margin_ns: float, alpha: float) -> int | None:
    shown = power.runs_needed(sides, margin_ns, alpha)
    if shown is not None and shown <= min(sides.sizes):
        return power.runs_for_width(sides, margin_ns, alpha)
    return shown


def _bounds(found: tuple[float, float] | None, zero: float, value: float, differs: bool) -> Bounds | None:
    """The interval, which ends at `zero` where the family's test has ruled that out."""
    if found is None:
        return None
    low, high = found
    if differs:
        low, high = (max(low, zero), high) if value > zero else (low, min(high, zero))
    return Bounds(low, high)


def _over(difference: Bounds, first_ns: float) -> Bounds:
    if first_ns:
        return Bounds(difference.low / first_ns, difference.high / first_ns)
    return Bounds(math.inf if difference.low > 0 else -math.inf, math.inf)


def _inside(bounds: Bounds | None, margin: float) -> bool:
    return bounds is not None and -margin < bounds.low and bounds.high < margin
