"""Power of the permutation test: the smallest detectable difference, and the runs that detect a given difference.

Power is simulated for normally distributed values, because few runs have few relabellings. Beyond `SIMULATED`
relabellings, Student's t-test approximates the permutation test (Fisher 1935; Lehmann and Romano, "Testing Statistical
Hypotheses", 15.2).
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable
from functools import cache

import numpy as np

from dlobd.compare import permutation
from dlobd.compare.permutation import Samples

POWER = 0.8
"""Probability of detecting a detectable difference (Cohen's convention)."""

SIMULATED = 5_000
"""Maximum relabellings with simulated power: 12 pairs, or two samples of 7."""

SIMULATIONS = 2_000
MOST_RUNS = 1_000
"""Maximum runs per sample; more are not practical."""

UPPER = 0.9
"""Confidence of the upper limit of the standard deviation for the number of needed runs. The standard deviation of few
runs is itself uncertain (Browne 1995, "On the use of a pilot sample for sample size determination"). 0.8 is enough for
normal distributions; run times have longer tails, which few runs underestimate."""


def scatter_ns(samples: Samples) -> float | None:
    """Return the standard deviation of paired differences, or pooled over both samples; None with too few runs."""
    if samples.paired:
        differences = [after - before for before, after in zip(samples.baseline, samples.candidate, strict=True)]
        return statistics.stdev(differences) if len(differences) > 1 else None
    freedom = sum(samples.sizes) - 2
    both = (samples.baseline, samples.candidate)
    squares = sum(statistics.variance(sample) * (len(sample) - 1) for sample in both if len(sample) > 1)
    return math.sqrt(squares / freedom) if freedom > 0 else None


def smallest_ns(samples: Samples, alpha: float) -> float | None:
    """Return the smallest difference of means, in nanoseconds, that samples of this size and spread detect at `alpha`
    with `POWER`; None with too few runs."""
    scatter, detectable = scatter_ns(samples), multiple(*samples.sizes, samples.paired, alpha)
    return None if scatter is None or detectable is None else scatter * detectable


def runs_needed(samples: Samples, effect_ns: float, alpha: float) -> int | None:
    """Return the runs per sample that detect a difference of `effect_ns` at `alpha` with `POWER`; None with too few
    runs for an estimate, or if the result exceeds `MOST_RUNS`."""
    return _fewest(samples, effect_ns, alpha, lambda size: multiple(size, size, samples.paired, alpha))


def runs_for_width(samples: Samples, width_ns: float, alpha: float) -> int | None:
    """Return the runs per sample for a t-interval of at most `width_ns`; None as in `runs_needed`."""

    def width(size: int) -> float:
        freedom = _freedom(size, size, samples.paired)
        return 2 * student_quantile(1 - alpha / 2, freedom) * _error(size, size, samples.paired)

    return _fewest(samples, width_ns, alpha, width)


def _fewest(samples: Samples, most_ns: float, alpha: float, needed: Callable[[int], float | None]) -> int | None:
    """Return the runs per sample for which `needed` x upper limit of the standard deviation is at most `most_ns`."""
    scatter = scatter_ns(samples)
    if scatter is None or most_ns <= 0:
        return None
    upper_ns = scatter * upper_ratio(_freedom(*samples.sizes, samples.paired))

    def enough(size: int) -> bool:
        found = needed(size)
        return found is not None and found * upper_ns <= most_ns

    sizes = range(permutation.fewest(alpha, samples.paired), MOST_RUNS + 1)
    place = bisect_left(sizes, True, key=enough)
    return sizes[place] if place < len(sizes) else None


@cache
def multiple(baseline: int, candidate: int, paired: bool, alpha: float) -> float | None:
    """Return the smallest detectable difference as a multiple of the standard deviation; None with too few runs."""
    labellings = permutation.count(baseline, candidate, paired)
    outside = permutation.rank(labellings, alpha)
    if not outside:
        return None
    if labellings > SIMULATED:
        freedom = _freedom(baseline, candidate, paired)
        quantiles = (student_quantile(part, freedom) for part in (1 - alpha / 2, POWER))
        return sum(quantiles) * _error(baseline, candidate, paired)
    random = np.random.default_rng(0)
    went, came, _ = permutation.relabellings(baseline, candidate, paired)
    thresholds = came @ random.normal(size=(candidate, SIMULATIONS))
    if not paired:
        thresholds -= went @ random.normal(size=(baseline, SIMULATIONS))
    thresholds /= came.sum(axis=1)[:, None]
    # an effect is detected if the lower bound of the interval is above zero
    lowest = np.partition(thresholds, outside - 1, axis=0)[outside - 1]
    return float(np.quantile(-lowest, POWER))


def _freedom(baseline: int, candidate: int, paired: bool) -> int:
    return baseline - 1 if paired else baseline + candidate - 2


def _error(baseline: int, candidate: int, paired: bool) -> float:
    """Return the standard error of the difference of means for a standard deviation of 1."""
    return math.sqrt(1 / baseline if paired else 1 / baseline + 1 / candidate)


def student_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t (Abramowitz and Stegun, 26.7.5): within 1 % from 5 degrees of freedom on."""
    z = statistics.NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def upper_ratio(freedom: int) -> float:
    """Return the ratio of a standard deviation's upper limit to its estimate. The quantile of chi-squared is exact for
    one degree of freedom, otherwise within 7 % (Wilson and Hilferty: Abramowitz and Stegun, 26.4.17)."""
    normal = statistics.NormalDist()
    if freedom == 1:
        return 1 / normal.inv_cdf(1 - UPPER / 2)
    share = 2 / (9 * freedom)
    return math.pow(1 - share + normal.inv_cdf(1 - UPPER) * math.sqrt(share), -1.5)
