"""Noise: the variation of equal runs, and measurements of the machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

ENOUGH_RUNS = 6
"""Minimum number of runs for a useful standard deviation."""

DIFFERENCE = 2.77
"""Number of standard deviations by which two equal runs differ in 95 % of cases: 1.96 times the root of 2."""

UNKNOWN_NOISE = 0.10
"""Noise as a share of the wall time, assumed if there are too few stored runs. Single runs of docs/results.md differ by
5 to 13 %."""


def run_variation(walls_ns: Sequence[int]) -> float | None:
    """Return the standard deviation of wall times as a share of their mean; None for fewer than `ENOUGH_RUNS`."""
    return statistics.stdev(walls_ns) / statistics.fmean(walls_ns) if len(walls_ns) >= ENOUGH_RUNS else None


def noise_ns(earlier_walls_ns: Sequence[int], wall_ns: int) -> int:
    """Return an upper bound of the difference of two equal runs in 95 % of cases; `UNKNOWN_NOISE` for too few runs."""
    variation = run_variation(earlier_walls_ns)
    return round((UNKNOWN_NOISE if variation is None else DIFFERENCE * variation) * wall_ns)
