"""Estimates the difference of equal runs, from earlier runs and from a machine's measured noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from dlobd.record.run import Noise

ENOUGH_RUNS = 6
"""Minimum number of runs for a standard deviation."""

DIFFERENCE = 2.77
"""Difference of two equal runs in 95 of 100 cases, in standard deviations: 1.96 times the root of 2."""

UNKNOWN_NOISE = 0.10
"""Share of the wall that is assumed if the number of stored runs is too small: on the machines of docs/bench.md single
runs differ by 5 to 13 %."""

Z = 1.96 + 0.84
"""A two-sided test at 5 % that finds a true effect in 80 of 100 cases; normal approximation for two equal groups."""


def run_variation(walls_ns: Sequence[int]) -> float | None:
    """Returns the standard deviation of walls as a share of their mean; None for fewer than `ENOUGH_RUNS`."""
    return statistics.stdev(walls_ns) / statistics.fmean(walls_ns) if len(walls_ns) >= ENOUGH_RUNS else None


def noise_ns(earlier_walls_ns: Sequence[int], wall_ns: int) -> int:
    """Returns the difference of two equal runs in 95 of 100 cases, known or assumed, in nanoseconds of the wall."""
    variation = run_variation(earlier_walls_ns)
    return round((UNKNOWN_NOISE if variation is None else DIFFERENCE * variation) * wall_ns)


def smallest_effect(earlier_walls_ns: Sequence[int], runs: int) -> float | None:
    """Returns the smallest difference of walls, as a share, that `runs` runs on each side would show: two-sided, 5 %,
    power 80 %, normal approximation; None where the variation of runs is not known.

    Raises:
        ValueError: one run has no spread.
    """
    if runs < 2:
        raise ValueError("two groups of at least 2 runs are needed")
    variation = run_variation(earlier_walls_ns)
    return None if variation is None else Z * variation * math.sqrt(2 / runs)


def sentence(noise: Noise) -> str:
    """Returns the result of this moment's measurement, and its limit."""
    return f"{_loop(noise)}; a wait ends up to {_wait_ms(noise):.2f} ms late. This is of now."


def short(noise: Noise, runs: int = ENOUGH_RUNS) -> str:
    """Returns the effect of the noise on runs, and on a single wait."""
    wait = f"a wait ends up to {_wait_ms(noise):.2f} ms late"
    walls = noise.earlier_walls_ns or ()
    if len(walls) < 2:
        return f"how much runs differ here is unknown (earlier ones: {len(walls)}); {_loop(noise)}; {wait}"
    took = f"{len(walls)} earlier runs took {min(walls) / 1e9:.1f} to {max(walls) / 1e9:.1f} s"
    share = smallest_effect(walls, runs)
    if share is None:
        return f"{took}, too few to say what a comparison can show; {wait}"
    return f"{took}, standard deviation {run_variation(walls):.1%}; {runs} a side cannot show below {share:.1%}; {wait}"


def _wait_ms(noise: Noise) -> float:
    return (noise.sleep_over_p99_ns + noise.loopback_p99_ns) / 1e6


def _loop(noise: Noise) -> str:
    return f"equal loops of 25 ms vary by {noise.loop_variation:.1%}, which cannot stand for a run"
