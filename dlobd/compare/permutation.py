"""Exact permutation test of two samples, its inversion to confidence intervals, and Holm's correction.

If both samples come from one distribution, their labels are exchangeable. A relabelling moves some baseline runs into
the candidate sample and equally many back: within a repeat if the samples are paired (the signs of some differences
change), else among all runs. The p-value is the fraction of relabellings, including the observed labelling, with a
difference of means at least as large as the observed difference.

Each relabelling has a threshold: the smallest effect for which it gives at least the observed difference. The threshold
is the mean of the runs moved out of the candidate sample minus the mean of the runs moved in, or for a ratio their
quotient. The rank of an effect among the thresholds gives its p-value, so two thresholds bound the confidence interval.
The interval has exactly its stated confidence for any distribution (Hartigan 1969, "Using Subsample Values as Typical
Values"; for two samples Pitman 1937).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALPHA = 0.05
"""Two-sided significance level of a family of tests."""

EXACT = 200_000
"""Maximum relabellings for an exact test: 17 pairs, or two samples of 10."""

DRAWN = 20_000
"""Number of relabellings drawn, with a fixed seed, if there are more than `EXACT`. Together with the observed labelling
they give a test of the same level (Phipson and Smyth 2010, "Permutation P-values Should Never Be Zero")."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Two samples of durations in nanoseconds; in paired samples, equal positions belong to one repeat. Raises
    ValueError if a sample is empty, or paired samples differ in length."""

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]
    paired: bool

    def __post_init__(self) -> None:
        if not self.baseline or not self.candidate:
            raise ValueError("a sample has no runs")
        if self.paired and len(self.baseline) != len(self.candidate):
            raise ValueError("paired samples differ in length")

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of runs in each sample."""
        return len(self.baseline), len(self.candidate)


@dataclass(frozen=True, slots=True)
class Test:
    """Sorted thresholds of differences in nanoseconds and of ratios candidate / baseline.

    ratios: None if a run has the value 0.
    exact: True if all relabellings were computed.
    """

    differences: Floats
    ratios: Floats | None
    exact: bool

    @property
    def relabellings(self) -> int:
        """Number of relabellings, including the observed labelling."""
        return len(self.differences) + 1

    @property
    def p(self) -> float:
        """Two-sided p-value: twice the smaller one-sided p-value."""
        at_most = int(np.searchsorted(self.differences, 0, side="right"))
        at_least = len(self.differences) - int(np.searchsorted(self.differences, 0, side="left"))
        return min(1.0, 2 * (1 + min(at_most, at_least)) / self.relabellings)

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """Return the confidence interval of the difference in nanoseconds; None with too few runs."""
        return _between(self.differences, rank(self.relabellings, alpha))

    def ratio_interval(self, alpha: float) -> tuple[float, float] | None:
        """Return the confidence interval of the ratio; None with too few runs or without a ratio."""
        return None if self.ratios is None else _between(self.ratios, rank(self.relabellings, alpha))


def test(samples: Samples) -> Test:
    """Return the sorted thresholds of the difference and of the ratio of two samples."""
    went, came, exact = relabellings(*samples.sizes, samples.paired)
    baseline, candidate = np.asarray(samples.baseline, float), np.asarray(samples.candidate, float)
    given, taken = went @ baseline, came @ candidate
    ratios = np.sort(taken / given) if baseline.min() > 0 and candidate.min() > 0 else None
    return Test(np.sort((taken - given) / came.sum(axis=1)), ratios, exact)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of a family, in the given order; results up to `ALPHA` are significant. Holm 1979, "A Simple
    Sequentially Rejective Multiple Test Procedure"."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def rank(relabellings: int, alpha: float) -> int:
    """Return the rank, from either end, of the threshold that bounds the interval of confidence 1 - `alpha`. It is the
    largest rank that leaves at most half of `alpha` outside; 0 with too few relabellings."""
    return math.floor(alpha / 2 * relabellings * (1 + 1e-12))  # 1e-12: rounding must not lower an integer product


def confidence(relabellings: int, alpha: float) -> float | None:
    """Return the exact confidence, at least 1 - `alpha`, of the interval; None without an interval."""
    outside = rank(relabellings, alpha)
    return 1 - 2 * outside / relabellings if outside else None


def count(baseline: int, candidate: int, paired: bool) -> int:
    """Return the number of relabellings that the test computes, including the observed labelling."""
    every = 2**baseline if paired else math.comb(baseline + candidate, baseline)
    return int(every) if every <= EXACT else DRAWN + 1


def fewest(alpha: float, paired: bool) -> int:
    """Return the fewest runs per sample for significance at `alpha`. At 5 %: 6 pairs, or two samples of 4."""
    return next(size for size in itertools.count(1) if rank(count(size, size, paired), alpha))


@lru_cache(maxsize=8)
def relabellings(baseline: int, candidate: int, paired: bool) -> tuple[Floats, Floats, bool]:
    """Build one row per relabelling, with 1 for each run that changes its sample, without the observed labelling. The
    second value is True if the rows are all relabellings."""
    exact = count(baseline, candidate, paired) != DRAWN + 1
    random = np.random.default_rng(0)
    if paired:
        if exact:
            numbers = np.arange(1, 2**baseline)
            went = (numbers[:, None] >> np.arange(baseline)) & 1
        else:
            went = random.integers(0, 2, (DRAWN, baseline))
            went[~went.any(axis=1), 0] = 1  # an all-zero row, the observed labelling, occurs about once in 2^18 draws
        return went.astype(float), went.astype(float), exact
    size = baseline + candidate
    if exact:
        stay = np.array(list(itertools.combinations(range(size), baseline)))[1:]  # without the observed labelling
    else:
        stay = random.permuted(np.tile(np.arange(size), (DRAWN, 1)), axis=1)[:, :baseline]
        stay[(stay < baseline).all(axis=1), 0] = baseline  # replace a drawn observed labelling, which is rare
    labels = np.zeros((len(stay), size))
    np.put_along_axis(labels, stay, 1, axis=1)
    return 1 - labels[:, :baseline], labels[:, baseline:], exact


def _between(thresholds: Floats, outside: int) -> tuple[float, float] | None:
    return (float(thresholds[outside - 1]), float(thresholds[-outside])) if outside else None
