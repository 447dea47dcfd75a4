"""Exact permutation test of two samples, its inversion to confidence intervals, and Holm's correction.

If both samples come from one distribution, each run could as well be in the other sample. A relabelling moves some
baseline runs into the candidate sample and as many back: within a repeat if the samples are paired (the signs of some
differences change), else among all runs. The p-value is the share of relabellings with a difference of means at least
as large as the observed one, which is counted too.

Each relabelling has a threshold: the effect from which on it gives at least the observed difference. The threshold is
the mean of the runs that came minus the mean of the runs that went, or for a ratio their quotient. An effect is thus as
likely as its rank among the thresholds, and two thresholds are the ends of the interval. The interval has exactly its
stated confidence for any distribution (Hartigan 1969, "Using Subsample Values as Typical Values"; for two samples
Pitman 1937).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"

ALPHA = 0.05
"""Two-sided level of a family of tests."""

EXACT = 200_000
"""Largest number of relabellings that are all computed: 17 pairs, or two samples of 10."""

DRAWN = 20_000
"""Number of relabellings drawn where there are more than `EXACT`, with a fixed seed. Together with the observed
labelling they give a test of the same level (Phipson and Smyth 2010, "Permutation P-values Should Never Be Zero")."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Nanoseconds of each run of two samples; in paired samples, equal positions belong to the same repeat. Raises
    ValueError if a sample is empty, or paired samples differ in length."""

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]
    paired: bool

    def __post_init__(self) -> None:
        if not self.baseline or not self.candidate:
            raise ValueError("a sample without runs")
        if self.paired and len(self.baseline) != len(self.candidate):
            raise ValueError("a pair without one of its runs")

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of runs in each sample."""
        return len(self.baseline), len(self.candidate)


@dataclass(frozen=True, slots=True)
class Test:
    """Thresholds in rising order, of differences in nanoseconds and of ratios candidate over baseline.

    ratios: None where a run has a value of 0.
    exact: all relabellings were computed.
    """

    differences: Floats
    ratios: Floats | None
    exact: bool

    @property
    def relabellings(self) -> int:
        """Number of relabellings, the observed labelling included."""
        return len(self.differences) + 1

    @property
    def p(self) -> float:
        """Two-sided p-value: twice the smaller of the one-sided ones."""
        import numpy as np

        at_most = int(np.searchsorted(self.differences, 0, side="right"))
        at_least = len(self.differences) - int(np.searchsorted(self.differences, 0, side="left"))
        return min(1.0, 2 * (1 + min(at_most, at_least)) / self.relabellings)

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """Return the interval of the difference in nanoseconds; None with too few runs."""
        return _between(self.differences, rank(self.relabellings, alpha))

    def ratio_interval(self, alpha: float) -> tuple[float, float] | None:
        """Return the interval of the ratio; None with too few runs or without a ratio."""
        return None if self.ratios is None else _between(self.ratios, rank(self.relabellings, alpha))


def test(samples: Samples) -> Test:
    """Compute the thresholds of two samples."""
    import numpy as np

    went, came, exact = relabellings(*samples.sizes, samples.paired)
    baseline, candidate = np.asarray(samples.baseline, float), np.asarray(samples.candidate, float)
    given, taken = went @ baseline, came @ candidate
    ratios = np.sort(taken / given) if baseline.min() > 0 and candidate.min() > 0 else None
    return Test(np.sort((taken - given) / came.sum(axis=1)), ratios, exact)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their family, in the given order; at most `ALPHA` is significant. Holm 1979, "A Simple
    Sequentially Rejective Multiple Test Procedure"."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def rank(relabellings: int, alpha: float) -> int:
    """Return the rank of the threshold that bounds the interval of confidence 1 - `alpha` at either end. It is the
    largest rank that leaves at most half of `alpha` outside; 0 where even the outermost leaves more."""
    return math.floor(alpha / 2 * relabellings * (1 + 1e-12))  # 1e-12: rounding must not lower a whole product


def confidence(relabellings: int, alpha: float) -> float | None:
    """Return the exact confidence of the interval of at least 1 - `alpha`; None without an interval."""
    outside = rank(relabellings, alpha)
    return 1 - 2 * outside / relabellings if outside else None


def count(baseline: int, candidate: int, paired: bool) -> int:
    """Return the number of relabellings that the test computes, the observed labelling included."""
    every = 2**baseline if paired else math.comb(baseline + candidate, baseline)
    return int(every) if every <= EXACT else DRAWN + 1


def fewest(alpha: float, paired: bool) -> int:
    """Return the smallest number of runs per sample with which a difference can be significant at `alpha`. At 5 %: 6
    pairs, or two samples of 4."""
    return next(size for size in itertools.count(1) if rank(count(size, size, paired), alpha))


@lru_cache(maxsize=8)
def relabellings(baseline: int, candidate: int, paired: bool) -> tuple[Floats, Floats, bool]:
    """Return the runs that leave each sample, 0 or 1, with one row per relabelling; and True if these are all. The
    observed labelling is not among them."""
    import numpy as np

    exact = count(baseline, candidate, paired) != DRAWN + 1
    random = np.random.default_rng(0)
    if paired:
        if exact:
            numbers = np.arange(1, 2**baseline)
            went = (numbers[:, None] >> np.arange(baseline)) & 1
        else:
            went = random.integers(0, 2, (DRAWN, baseline))
            went[~went.any(axis=1), 0] = 1  # happens at most once in 2^18 draws
        return went.astype(float), went.astype(float), exact
    size = baseline + candidate
    if exact:
        stay = np.array(list(itertools.combinations(range(size), baseline)))[1:]  # the first one changes nothing
    else:
        stay = random.permuted(np.tile(np.arange(size), (DRAWN, 1)), axis=1)[:, :baseline]
        stay[(stay < baseline).all(axis=1), 0] = baseline  # the observed labelling, which is hardly ever drawn
    labels = np.zeros((len(stay), size))
    np.put_along_axis(labels, stay, 1, axis=1)
    return 1 - labels[:, :baseline], labels[:, baseline:], exact


def _between(thresholds: Floats, outside: int) -> tuple[float, float] | None:
    return (float(thresholds[outside - 1]), float(thresholds[-outside])) if outside else None
