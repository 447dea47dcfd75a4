"""Estimates from repeats whose runs belong together: what one repeat has, is compared within it.

A repeat is a block of a series: what drifts from one to the next is alike for all of its runs, so that whole repeats
are resampled, never single runs. Values are in any unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import bootstrap, norm
from scipy.stats import t as student

from dlobd.attribution.statistics import CONFIDENCE, RESAMPLES

ENOUGH = 5
"""Fewer repeats give no interval. One from resampling is never wider than what was seen, from lowest to highest: of n
values it misses the truth in 2 of 2^n cases or more, which is 1 in 8 for 4 and 1 in 16 for 5."""


ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval, whose ends are None where there are too few repeats for one. Infinite: never."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width, as a share of the value."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)

    def __str__(self) -> str:
        """Three digits each, of small values three decimals: 39.8 (37.9 to 41.2)."""
        value, low, high = map(_number, (self.value, self.low, self.high))
        return value if self.low is None or low == high == "never" else f"{value} ({low} to {high})"

    def holds(self, value: float) -> bool | None:
        """Whether a value is inside, to within the rounding of floats; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low - ROUNDING * abs(value) <= value <= self.high + ROUNDING * abs(value)


def hodges_lehmann(values: Any, axis: int = -1) -> Any:
    """The median of the means of all pairs, a value with itself included: as sure as the mean where nothing disturbs,
    and hardly moved by one value that is far off (Hodges and Lehmann 1963)."""
    one = np.moveaxis(np.asarray(values, float), axis, -1)
    first, second = np.triu_indices(one.shape[-1])
    return np.median((one[..., first] + one[..., second]) / 2, axis=-1)


def resampled(samples: Sequence[Sequence[float]], centre: Callable[..., Any] = np.mean, seed: int = 0) -> Any:
    """The centre of each sample for resampled repeats, shape (samples, `RESAMPLES`): a column has the same repeats in
    all rows. Equal input, equal output.

    Args:
        samples: one value a repeat each, all in the same order.
        centre: takes an array and `axis`.
    """
    rows = np.asarray(samples, float)
    if rows.shape[1] == 1:
        return np.repeat(rows, RESAMPLES, axis=1)

    def centres(repeats: Any, axis: int) -> Any:
        return np.stack([centre(row[repeats], axis=axis) for row in rows])

    which = np.arange(rows.shape[1])
    drawn = bootstrap((which,), centres, n_resamples=RESAMPLES, method="percentile", vectorized=True, rng=seed)
    return drawn.bootstrap_distribution


def estimate(value: float, distribution: Any, repeats: int) -> Estimate:
    """A value with the 95 % interval that its bootstrap distribution gives.

    The percentiles are expanded: so far out that the interval of a mean is as wide as Student's, which the plain one is
    not for few repeats (Hesterberg 2015, "What Teachers Should Know About the Bootstrap").

    Args:
        value: the estimate itself; infinite for one that does not exist.
        distribution: of the resamples; may have infinite values.
        repeats: how many were resampled.
    """
    return _between(value, distribution, repeats, _out(repeats))


def widened(distribution: Any, repeats: int) -> Any:
    """The resamples, as much further from their median as `estimate` goes out further than plain percentiles: to be
    added to what is known otherwise than from the repeats.

    Args:
        distribution, repeats: see `estimate`; finite.
    """
    middle = np.median(distribution)
    return middle + (distribution - middle) * _out(repeats) / _PLAIN


def plain(value: float, distribution: Any, repeats: int) -> Estimate:
    """As `estimate`, by plain percentiles, of a distribution that is wide enough."""
    return _between(value, distribution, repeats, _PLAIN)


def _between(value: float, distribution: Any, repeats: int, out: float) -> Estimate:
    if repeats < ENOUGH:
        return Estimate(value)
    # without interpolation, which has no result between a finite and an infinite value
    low, high = np.quantile(distribution, [norm.cdf(-out), norm.cdf(out)], method="inverted_cdf")
    return Estimate(value, float(low), float(high))


_PLAIN = float(norm.ppf((1 + CONFIDENCE) / 2))
"""Standard deviations to either end of an interval where they are known."""


def _out(repeats: int) -> float:
    """And where they are estimated, and resampled, from so few repeats."""
    if repeats < ENOUGH:
        return _PLAIN  # there is no interval
    return float(student.ppf((1 + CONFIDENCE) / 2, repeats - 1) * np.sqrt(repeats / (repeats - 1)))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if np.isinf(value):
        return "never"
    if abs(value) < 0.01:
        return f"{round(value, 3) + 0.0:.3f}"  # + 0.0: without a sign before a zero
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
