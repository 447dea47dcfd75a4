"""Estimates from repeats whose runs belong together: what one repeat has, is compared within it.

A repeat is a block of a series: what drifts from one to the next is alike for all of its runs. So a figure is computed
of groups of whole repeats, and the interval lies between two of these figures. Two kinds of groups have exact ones:

    sets    means, which add up; the interval is all that a test by flipping signs does not reject. The truth is equally
            likely between any two neighbours of all figures (Hartigan 1969, doi:10.1080/01621459.1969.10501057)
    pairs   centres that one far value hardly moves (Hodges and Lehmann 1963); all that Wilcoxon's signed-rank test does
            not reject

Both assume that repeats are independent, and that what a repeat deviates by from the truth is as likely positive as
negative, of any size; not that it is normal. With randomised order within repeats, differences of two ways that vary
alike are so by construction. Values are in any unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dlobd.attribution.statistics import CONFIDENCE
from dlobd.compare.median import Estimate, fewest_repeats

ENOUGH = fewest_repeats()
"""Fewer repeats give no interval of 95 %."""

BY_ITSELF = "Each interval holds by itself as often as its coverage says: they are not corrected for being several."
"""What is said of a table of them."""

MOST_SETS = 4095
"""Of more repeats than 12 so many sets are drawn: the truth is then as likely between any two neighbours of these."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Means over groups of repeats.

    means: one row a sample, one column a group, which has the same repeats in all rows.
    outside: so many figures at either end lie outside of the interval, its end included; 0: too few repeats.
    coverage: of the interval.
    """

    means: Any
    outside: int
    coverage: float

    def estimate(self, figures: Any, value: float | None = None) -> Estimate:
        """A figure with its interval.

        Args:
            figures: of each group, in the order of `means`. For a ratio of means, or whatever is monotone in the truth.
            value: of all repeats; by default the median of the figures. Infinite for one that does not exist.
        """
        found = float(np.median(figures)) if value is None else value
        if not self.outside:
            return Estimate(found)
        ordered = np.sort(figures)
        return Estimate(found, float(ordered[self.outside - 1]), float(ordered[-self.outside]), self.coverage)


def subsample_mean(samples: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Groups:
    """Means over all sets of repeats.

    Args:
        samples: one value a repeat each, all in the same order.
    """
    rows = np.asarray(samples, float)
    members = _members(rows.shape[1])
    outside = int((1 - confidence) / 2 * (len(members) + 1))
    return Groups(rows @ members.T / members.sum(axis=1), outside, 1 - 2 * outside / (len(members) + 1))


def hodges_lehmann(samples: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Groups:
    """Means over all pairs of repeats, one with itself included; see `subsample_mean`."""
    rows = np.asarray(samples, float)
    first, second = np.triu_indices(rows.shape[1])
    missed = 2 * np.cumsum(_signed_rank(rows.shape[1]))
    outside = int(np.searchsorted(missed, 1 - confidence, side="right"))
    coverage = 1 - float(missed[outside - 1]) if outside else 0.0
    return Groups((rows[:, first] + rows[:, second]) / 2, outside, coverage)


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The mean of the repeats."""
    found = subsample_mean([values], confidence)
    return found.estimate(found.means[0], float(np.mean(values)))


def ratio(above: Sequence[float], below: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean over mean; the truth r is where above - r x below varies around 0. `below` is positive."""
    found = subsample_mean([above, below], confidence)
    return found.estimate(found.means[0] / found.means[1], float(np.mean(above) / np.mean(below)))


def centre(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The Hodges-Lehmann centre: the median of the means of all pairs."""
    found = hodges_lehmann([values], confidence)
    return found.estimate(found.means[0])


def coverage(*found: Estimate | None) -> str:
    """Of the intervals of these, each that occurs; a dash without any."""
    each = {one.coverage: f"{one.coverage:.1%}" for one in found if one and one.coverage is not None}
    return ", ".join(each.values()) or "-"


@cache
def _members(repeats: int) -> Any:
    """One row a set, 1 for each repeat that is in it; the empty set is none."""
    if 2**repeats - 1 <= MOST_SETS:
        return (np.arange(1, 2**repeats)[:, None] >> np.arange(repeats)) & 1
    drawn = np.unique(np.random.default_rng(0).integers(2, size=(MOST_SETS, repeats)), axis=0)
    return drawn[drawn.any(axis=1)]


@cache
def _signed_rank(repeats: int) -> Any:
    """Probability of each sum of the ranks of positive values, if either sign is as likely."""
    chance = np.ones(1)
    for rank in range(1, repeats + 1):
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    return chance
