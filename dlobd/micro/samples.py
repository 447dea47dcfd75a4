"""Samples of one launch: end of the warm-up, mean and percentiles. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_ABOVE = 10
"""Samples beyond a percentile that it needs: 1,000 samples for p99. With fewer, its estimate is mainly one outlier."""

MSER_BATCH = 5
"""Samples per batch of MSER-5 (White, "An Effective Truncation Heuristic for Bias Reduction in Simulation Output",
1997)."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of the samples of a launch, without the warm-up, in nanoseconds.

    A percentile is None with too few samples. `median` is p50 of any number of samples.

    warm_up: number of samples before the steady state.
    steady: False if the warm-up does not end within the first half.
    """

    count: int
    warm_up: int
    steady: bool
    mean: float
    median: float
    p50: float | None
    p90: float | None
    p99: float | None


def fewest(quantile: float) -> int:
    """Return the smallest number of samples that supports an estimate of a quantile."""
    return math.ceil(FEWEST_ABOVE / min(quantile, 1 - quantile) - 1e-9)


def warm_up(times_ns: Sequence[int]) -> tuple[int, bool]:
    """Return the number of samples of the warm-up by MSER-5, and whether the rest is steady.

    MSER removes the first samples such that the standard error of the mean of the rest is least. If the minimum is in
    the second half, there is no steady state, and nothing is removed. Samples above the 99th percentile are clipped,
    because a single outlier in the second half is no warm-up.
    """
    count = len(times_ns) // MSER_BATCH
    if count < 4:
        return 0, True
    values = np.asarray(times_ns[: count * MSER_BATCH], float)
    means = np.minimum(values, np.quantile(values, 0.99)).reshape(count, MSER_BATCH).mean(axis=1)
    left = np.arange(count, 0, -1)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    errors = (squares - sums**2 / left) / left**2
    first = int(np.argmin(errors[: count - 2]))
    if first > count // 2:
        return 0, False
    return first * MSER_BATCH, True


def summary(times_ns: Sequence[int], open_loop: bool = False) -> Summary | None:
    """Summarise the samples of a launch; None without samples. An open loop keeps all samples: a stall at its
    beginning is no warm-up."""
    if not times_ns:
        return None
    skipped, steady = (0, True) if open_loop else warm_up(times_ns)
    values = np.asarray(times_ns[skipped:], float)
    percentiles = (
        float(np.quantile(values, part)) if len(values) >= fewest(part) else None for part in (0.5, 0.9, 0.99)
    )
    return Summary(len(values), skipped, steady, float(values.mean()), float(np.median(values)), *percentiles)
