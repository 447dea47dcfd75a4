"""Which differences so many runs can show, and how many runs a difference needs. Pure.

Power is that of the permutation test of `permutation`, for runs that scatter like a normal distribution: simulated, as
few runs have far fewer relabellings than a formula knows of, and beyond `SIMULATED` by Student's test, which the
permutation test then equals (Fisher 1935; Lehmann and Romano, "Testing Statistical Hypotheses", 15.2).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable
from functools import cache

from dlobd.attribution import permutation
from dlobd.attribution.permutation import Sides

POWER = 0.8
"""A difference that is said to show, shows in so many of 100 comparisons (Cohen's convention)."""

SIMULATED = 5_000
"""Up to so many relabellings: 12 blocks, or two sides of 7."""

SAMPLES = 2_000
MOST_RUNS = 1_000
"""Runs a side; what needs more cannot be shown in practice."""

UPPER = 0.9
"""The scatter of a few runs is itself uncertain: runs needed are computed from its upper limit of this confidence, so
that they suffice in as many cases (Browne 1995, "On the use of a pilot sample for sample size determination"). Of
normal scatter 0.8 would do; that of runs has longer tails, of which a few runs show too little."""


def scatter_ns(sides: Sides) -> float | None:
    """The standard deviation of the blocks' differences, or of the runs of a side, both taken together; in
    nanoseconds; None where there are too few."""
    if sides.blocks:
        found = [second - first for first, second in zip(sides.first, sides.second, strict=True)]
        return statistics.stdev(found) if len(found) > 1 else None
    freedom = sum(sides.sizes) - 2
    both = (sides.first, sides.second)
    squares = sum(statistics.variance(side) * (len(side) - 1) for side in both if len(side) > 1)
    return math.sqrt(squares / freedom) if freedom > 0 else None


def smallest_ns(sides: Sides, alpha: float) -> float | None:
    """The smallest difference of means, in nanoseconds, that runs which scatter like these show at `alpha` with
    `POWER`; None where there are too few to show any."""
    scatter, shown = scatter_ns(sides), multiple(*sides.sizes, sides.blocks, alpha)
    return None if scatter is None or shown is None else scatter * shown


def runs_needed(sides: Sides, effect_ns: float, alpha: float) -> int | None:
    """So many runs a side show a difference of means of `effect_ns` at `alpha` with `POWER`; None where there are too
    few runs to tell, or more than `MOST_RUNS` are needed."""
    scatter = scatter_ns(sides)
    if scatter is None or effect_ns <= 0:
        return None
    wanted = effect_ns / (scatter * _upper(_freedom(*sides.sizes, sides.blocks))) if scatter else math.inf

    def enough(size: int) -> bool:
        shown = multiple(size, size, sides.blocks, alpha)
        return shown is not None and shown <= wanted

    return _smallest(permutation.fewest(alpha, sides.blocks), enough)


def runs_for_width(sides: Sides, width_ns: float, alpha: float) -> int | None:
    """So many runs a side have an interval no wider than `width_ns`, by Student's; None as in `runs_needed`."""
    scatter = scatter_ns(sides)
    if scatter is None or width_ns <= 0:
        return None
    spread = scatter * _upper(_freedom(*sides.sizes, sides.blocks))

    def enough(size: int) -> bool:
        return 2 * _student(1 - alpha / 2, size, size, sides.blocks) * _error(size, size, sides.blocks) * spread <= (
            width_ns
        )

    return _smallest(permutation.fewest(alpha, sides.blocks), enough)


@cache
def multiple(first: int, second: int, blocks: bool, alpha: float) -> float | None:
    """`smallest_ns` of runs that scatter by 1."""
    labellings = permutation.count(first, second, blocks)
    outside = permutation.rank(labellings, alpha)
    if not outside:
        return None
    if labellings > SIMULATED:
        return (_student(1 - alpha / 2, first, second, blocks) + _student(POWER, first, second, blocks)) * _error(
            first, second, blocks
        )
    import numpy as np

    random = np.random.default_rng(0)
    went, came, _ = permutation.relabellings(first, second, blocks)
    if blocks:
        thresholds = came @ random.normal(size=(second, SAMPLES))
    else:
        thresholds = came @ random.normal(size=(second, SAMPLES)) - went @ random.normal(size=(first, SAMPLES))
    thresholds /= came.sum(axis=1)[:, None]
    # a sample shows an effect that lifts its interval's lower end above zero
    lowest = np.partition(thresholds, outside - 1, axis=0)[outside - 1]
    return float(np.quantile(-lowest, POWER))


def _smallest(fewest: int, enough: Callable[[int], bool]) -> int | None:
    """The smallest number of runs from `fewest` on that is enough; more are enough as well."""
    sizes = range(fewest, MOST_RUNS + 1)
    found = bisect_left(sizes, True, key=enough)
    return sizes[found] if found < len(sizes) else None


def _freedom(first: int, second: int, blocks: bool) -> int:
    return first - 1 if blocks else first + second - 2


def _error(first: int, second: int, blocks: bool) -> float:
    """The standard error of the difference of means, of runs or differences that scatter by 1."""
    return math.sqrt(1 / first if blocks else 1 / first + 1 / second)


@cache
def _student(probability: float, first: int, second: int, blocks: bool) -> float:
    # imported here: it takes a second, and most commands compare nothing
    from scipy.stats import t

    return float(t.ppf(probability, _freedom(first, second, blocks)))


@cache
def _upper(freedom: int) -> float:
    """A standard deviation's upper limit over its estimate."""
    from scipy.stats import chi2

    return math.sqrt(freedom / float(chi2.ppf(1 - UPPER, freedom)))
