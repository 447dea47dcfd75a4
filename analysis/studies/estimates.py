"""Paired estimates: runs are compared within each repeat.

A repeat is a block of a series: a drift between repeats affects all of its runs equally. A figure is computed for
groups of whole repeats, and two of these values bound its confidence interval. Two kinds of groups give exact
intervals:

    subsample_mean    means over all subsets, which add up; the interval contains all values that a test by flipping
                      signs does not reject (Hartigan 1969, doi:10.1080/01621459.1969.10501057)
    hodges_lehmann    means over all pairs, robust against outliers; the interval contains all values that Wilcoxon's
                      signed-rank test does not reject (Hodges and Lehmann 1963)

Both assume independent repeats with symmetric deviations from the true value, of any distribution. Random order within
repeats makes differences between two equally variable samples symmetric. Values may have any unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dlobd.compare.median import Estimate, fewest_repeats
from dlobd.measures.statistics import CONFIDENCE

ENOUGH = fewest_repeats()
"""Minimum number of repeats for a 95 % interval."""

BY_ITSELF = "Coverages hold for each interval by itself, without a correction for multiple intervals."
"""Note below a table of intervals."""

Floats = NDArray[np.float64]

MOST_SETS = 4095
"""Maximum number of subsets: all subsets of 12 repeats. With more repeats, this many random subsets are drawn, and the
interval is still exact."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Means over groups of repeats.

    means: one row per sample, and one column per group with the same repeats in all rows.
    outside: rank, from either end, of the value that bounds the interval; 0 with too few repeats.
    coverage: coverage of the interval.
    """

    means: Floats
    outside: int
    coverage: float

    def estimate(self, figures: Floats, value: float | None = None) -> Estimate:
        """Estimate a figure with its confidence interval.

        Args:
            figures: value of each group, in the order of `means`: a function of the means, monotone in the true value.
            value: value of all repeats; by default the median of `figures`.
        """
        found = float(np.median(figures)) if value is None else value
        if not self.outside:
            return Estimate(found)
        ordered = np.sort(figures)
        return Estimate(found, float(ordered[self.outside - 1]), float(ordered[-self.outside]), self.coverage)


def subsample_mean(samples: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Groups:
    """Compute the means over all subsets of repeats.

    Args:
        samples: one value per repeat, in equal order.
    """
    rows = np.asarray(samples, float)
    members = _members(rows.shape[1])
    outside = int((1 - confidence) / 2 * (len(members) + 1))
    return Groups(rows @ members.T / members.sum(axis=1), outside, 1 - 2 * outside / (len(members) + 1))


def hodges_lehmann(samples: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Groups:
    """Compute the means over all pairs of repeats, including pairs of a repeat with itself; see `subsample_mean`."""
    rows = np.asarray(samples, float)
    first, second = np.triu_indices(rows.shape[1])
    missed = 2 * np.cumsum(_signed_rank(rows.shape[1]))
    outside = int(np.searchsorted(missed, 1 - confidence, side="right"))
    coverage = 1 - float(missed[outside - 1]) if outside else 0.0
    return Groups((rows[:, first] + rows[:, second]) / 2, outside, coverage)


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the mean over repeats."""
    found = subsample_mean([values], confidence)
    return found.estimate(found.means[0], float(np.mean(values)))


def ratio(above: Sequence[float], below: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the ratio of two means: the r for which above - r x below has mean 0. `below` must be positive."""
    found = subsample_mean([above, below], confidence)
    return found.estimate(found.means[0] / found.means[1], float(np.mean(above) / np.mean(below)))


def centre(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the Hodges-Lehmann centre, the median of the means of all pairs."""
    found = hodges_lehmann([values], confidence)
    return found.estimate(found.means[0])


def coverage(*found: Estimate | None) -> str:
    """Format the distinct coverages of estimates; a dash without intervals."""
    each = {one.coverage: f"{one.coverage:.1%}" for one in found if one and one.coverage is not None}
    return ", ".join(each.values()) or "-"


@cache
def _members(repeats: int) -> NDArray[np.int64]:
    if 2**repeats - 1 <= MOST_SETS:
        return (np.arange(1, 2**repeats)[:, None] >> np.arange(repeats)) & 1
    drawn = np.unique(np.random.default_rng(0).integers(2, size=(MOST_SETS, repeats)), axis=0)
    return drawn[drawn.any(axis=1)]


@cache
def _signed_rank(repeats: int) -> Floats:
    """Return the distribution of Wilcoxon's signed-rank sum for equally likely signs."""
    chance = np.ones(1)
    for rank in range(1, repeats + 1):
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    return chance
