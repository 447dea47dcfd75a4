"""The exact permutation test of two sides, and the interval that is its inversion. Pure.

Were the sides alike, each run could as well have been of the other side. A relabelling hands some of the first side's
runs to the second, and as many back: within a block, where both sides were run in the same repeat (then it changes the
signs of some of the blocks' differences), else among all runs. The p-value is the share of relabellings that give a
difference of means at least as large as the one found, the found one included.

For each relabelling there is an effect from which on it gives at least the found difference: its threshold, the mean of
the runs that came minus the mean of those that went, or for a ratio the one over the other. So an effect is as likely
as its rank among the thresholds, and the interval's ends are two of them: it has exactly the confidence that it states,
whatever the distribution (Hartigan 1969, "Using Subsample Values as Typical Values"; for two samples Pitman 1937).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

EXACT = 200_000
"""Up to so many relabellings are all looked at: 17 blocks, or two sides of 10."""

DRAWN = 20_000
"""Of more, so many are drawn, equal ones each time; with the found labelling they make a test of the same level
(Phipson and Smyth 2010, "Permutation P-values Should Never Be Zero")."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Nanoseconds of each run of two sides; where `blocks`, equal places are of the same repeat.

    Raises:
        ValueError: a side is empty, or blocks are not complete.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    blocks: bool

    def __post_init__(self) -> None:
        if not self.first or not self.second:
            raise ValueError("a side without runs")
        if self.blocks and len(self.first) != len(self.second):
            raise ValueError("a block without one of its runs")

    @property
    def sizes(self) -> tuple[int, int]:
        """Runs of each side."""
        return len(self.first), len(self.second)


@dataclass(frozen=True, slots=True)
class Test:
    """Thresholds in rising order, of differences in nanoseconds and of ratios second over first; the latter are None
    where a side has runs without any time. `exact`: all relabellings were looked at."""

    differences: Any
    ratios: Any
    exact: bool

    @property
    def relabellings(self) -> int:
        """So many were looked at, the found labelling included."""
        return len(self.differences) + 1

    @property
    def p(self) -> float:
        """Two-sided, that the sides are alike: twice the smaller one of the one-sided."""
        import numpy as np

        at_most = int(np.searchsorted(self.differences, 0, side="right"))
        at_least = len(self.differences) - int(np.searchsorted(self.differences, 0, side="left"))
        return min(1.0, 2 * (1 + min(at_most, at_least)) / self.relabellings)

    def rank(self, alpha: float) -> int:
        """The rank, from either end, of the thresholds that bound the interval of confidence 1 - `alpha`; 0: none."""
        return rank(self.relabellings, alpha)

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """Of the difference, in nanoseconds; None where there are too few runs for one."""
        return _between(self.differences, self.rank(alpha))

    def ratio_interval(self, alpha: float) -> tuple[float, float] | None:
        """Of the ratio; None also where there is no ratio."""
        return None if self.ratios is None else _between(self.ratios, self.rank(alpha))


def test(sides: Sides) -> Test:
    """The test of these sides."""
    import numpy as np

    went, came, exact = relabellings(*sides.sizes, sides.blocks)
    first, second = np.asarray(sides.first, float), np.asarray(sides.second, float)
    given, taken = went @ first, came @ second
    ratios = np.sort(taken / given) if first.min() > 0 and second.min() > 0 else None
    return Test(np.sort((taken - given) / came.sum(axis=1)), ratios, exact)


def rank(relabellings: int, alpha: float) -> int:
    """So many of the thresholds lie outside of either end of the interval of confidence 1 - `alpha`, and one bounds it:
    the largest number that leaves no more than half of `alpha` there; 0 where even the outermost one leaves more."""
    return math.floor(alpha / 2 * relabellings * (1 + 1e-12))  # a product that is whole but for its rounding is whole


def confidence(relabellings: int, alpha: float) -> float | None:
    """What the interval of confidence 1 - `alpha`, or more, has exactly; None where there is none."""
    found = rank(relabellings, alpha)
    return 1 - 2 * found / relabellings if found else None


def count(first: int, second: int, blocks: bool) -> int:
    """How many relabellings the test looks at, the found labelling included: all, or those drawn."""
    every = 2**first if blocks else math.comb(first + second, first)
    return int(every) if every <= EXACT else DRAWN + 1


def fewest(alpha: float, blocks: bool) -> int:
    """So many runs a side are needed for any difference to be significant at `alpha`, two-sided: from so many on, two
    of all relabellings are no more than that share. At 5 %: 6 blocks, or two sides of 4."""
    return next(size for size in itertools.count(1) if rank(count(size, size, blocks), alpha))


@lru_cache(maxsize=8)
def relabellings(first: int, second: int, blocks: bool) -> tuple[Any, Any, bool]:
    """Which runs of the first side go and which of the second come, 0 or 1, a row each; and whether those are all.

    The found labelling is none of them.
    """
    import numpy as np

    exact = count(first, second, blocks) != DRAWN + 1
    random = np.random.default_rng(0)
    if blocks:
        if exact:
            numbers = np.arange(1, 2**first)
            went = (numbers[:, None] >> np.arange(first)) & 1
        else:
            went = random.integers(0, 2, (DRAWN, first))
            went[~went.any(axis=1), 0] = 1  # one in 2^18 or fewer
        return went.astype(float), went.astype(float), exact
    size = first + second
    if exact:
        stay = np.array(list(itertools.combinations(range(size), first)))[1:]  # the first one changes nothing
    else:
        stay = random.permuted(np.tile(np.arange(size), (DRAWN, 1)), axis=1)[:, :first]
        stay[(stay < first).all(axis=1), 0] = first  # hardly ever: the found labelling
    labels = np.zeros((len(stay), size))
    np.put_along_axis(labels, stay, 1, axis=1)
    return 1 - labels[:, :first], labels[:, first:], exact


def _between(thresholds: Any, outside: int) -> tuple[float, float] | None:
    return (float(thresholds[outside - 1]), float(thresholds[-outside])) if outside else None
