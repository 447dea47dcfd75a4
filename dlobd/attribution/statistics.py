"""How far repeats of one measurement lie apart, and how sure a ratio of two is. Pure.

Values are in any unit. What was not measured is None and is left out; without values every result is None.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

RESAMPLES = 10_000
CONFIDENCE = 0.95


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
class Ratio:
    """A ratio of two medians with its bootstrap interval; `low` and `high` are None for fewer than three values."""

    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Median:
    """A median with its bootstrap interval; `low` and `high` are None for fewer than three values."""

    median: float | None
    low: float | None
    high: float | None


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
    are drawn from: all of `n` lie below it with probability q^n."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(q))


def element(ordered: Sequence[int], q: float) -> int | None:
    """Element floor(`q` n), counted from 0, of `n` values in rising order; None without values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def quantile(ordered: Sequence[int], q: float) -> int | None:
    """The same, and None for fewer than `fewest(q)` values: it would say no more than their maximum."""
    return element(ordered, q) if len(ordered) >= fewest(q) else None


def ratio(above: Iterable[float | None], below: Iterable[float | None], seed: int = 0) -> Ratio:
    """Median of `above` over median of `below`, with a 95 % percentile bootstrap interval.

    Both are resampled by themselves, `RESAMPLES` times: repeats are not pairs. Equal input, equal interval.
    """
    over, under = measured(above), measured(below)
    if not over or not under or not statistics.median(under):
        return Ratio(None, None, None)
    found = statistics.median(over) / statistics.median(under)
    if min(len(over), len(under)) < 3:
        return Ratio(found, None, None)

    def of_medians(one: Any, other: Any, axis: int) -> Any:
        import numpy as np

        return np.median(one, axis=axis) / np.median(other, axis=axis)

    return Ratio(found, *_interval((over, under), of_medians, seed))


def median(values: Iterable[float | None], seed: int = 0) -> Median:
    """The median with a 95 % percentile bootstrap interval of `RESAMPLES` resamples. Equal input, equal interval."""
    known = measured(values)
    if len(known) < 3:
        return Median(statistics.median(known) if known else None, None, None)
    import numpy as np

    return Median(statistics.median(known), *_interval((known,), np.median, seed))


def _interval(samples: tuple[Sequence[float], ...], statistic: Callable[..., Any], seed: int) -> tuple[float, float]:
    # imported here: it takes a second, and most commands compare nothing
    from scipy.stats import bootstrap

    found = bootstrap(
        samples, statistic, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=seed
    ).confidence_interval
    return float(found.low), float(found.high)
