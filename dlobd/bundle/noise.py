"""Noise: the run-to-run variation of the wall time."""

import statistics
from collections.abc import Sequence

ENOUGH_RUNS = 6
"""Minimum number of runs for a useful standard deviation."""

DIFFERENCE = 2.77
"""Factor from the standard deviation of runs to the 95 % bound on the difference of two runs: 1.96 * sqrt(2)."""

UNKNOWN_NOISE = 0.10
"""Noise as a fraction of the wall time, assumed for fewer than `ENOUGH_RUNS` stored runs. Single runs in
docs/results.md differ by 5 to 13 %."""


def run_variation(walls_ns: Sequence[int]) -> float | None:
    """Return the standard deviation of wall times as a fraction of their mean; None for fewer than `ENOUGH_RUNS`."""
    return statistics.stdev(walls_ns) / statistics.fmean(walls_ns) if len(walls_ns) >= ENOUGH_RUNS else None


def noise_ns(earlier_walls_ns: Sequence[int], wall_ns: int, assumed: float = UNKNOWN_NOISE) -> int:
    """Return the 95 % bound on the wall-time difference of two equal runs; `assumed` x wall time for too few."""
    variation = run_variation(earlier_walls_ns)
    return round((assumed if variation is None else DIFFERENCE * variation) * wall_ns)
