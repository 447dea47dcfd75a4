"""Verdict, effect and confidence interval for each quantity of a family.

A family is the set of quantities of one question, such as all layers. The probability of a false difference anywhere in
the family is at most `permutation.ALPHA`: Holm's procedure adjusts p-values, and the intervals hold jointly, each with
confidence 1 - ALPHA / number of quantities. If Holm's test, which has more power, excludes zero, the interval ends at
zero (Strassburger and Bretz 2008, "Compatible simultaneous lower confidence bounds for the Holm procedure").
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from dlobd.compare import permutation, power
from dlobd.compare.permutation import ALPHA, Samples, holm

MARGIN = 0.05
"""Default margin of equivalence, as a fraction of the baseline mean."""

LEAST = 0.1
"""Margin of equivalence of a layer, as a fraction of the wall time's margin. It permits a layer of milliseconds to
double in a job of a minute."""

K = TypeVar("K")

Verdict = Literal["faster", "slower", "equivalent", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparison of one quantity. Times are means in nanoseconds; shares are relative to the baseline.

    runs: numbers of runs of baseline and candidate.
    difference, share: confidence intervals of `difference_ns`, absolute and relative. None with too few runs; `share`
        is also None if the quantity is 0 in a run.
    confidence: exact confidence of each single interval; None without intervals.
    p: p-value, adjusted for the family.
    margin_ns: margin of equivalence.
    smallest_ns: smallest difference that these runs detect with `power.POWER`; None with too few runs.
    runs_needed: runs of each side that detect a difference of `margin_ns` with `power.POWER`; if reached, runs for an
        interval of this width. None if unknown or more than `power.MOST_RUNS`.
    """

    verdict: Verdict
    baseline_ns: float
    candidate_ns: float
    runs: tuple[int, int]
    difference: Bounds | None
    share: Bounds | None
    confidence: float | None
    p: float
    exact: bool
    margin_ns: float
    smallest_ns: float | None
    runs_needed: int | None

    @property
    def difference_ns(self) -> float:
        """Candidate minus baseline."""
        return self.candidate_ns - self.baseline_ns

    @property
    def difference_share(self) -> float | None:
        """Difference relative to the baseline; None for a zero baseline."""
        return self.difference_ns / self.baseline_ns if self.baseline_ns else None


def compare_family(family: Mapping[K, Samples], margin: float = MARGIN, least_ns: float = 0.0) -> dict[K, Compared]:
    """Compare each quantity of a family. Equivalent: within `margin`, a fraction of the baseline, or `least_ns`."""
    tests = {name: permutation.test(samples) for name, samples in family.items()}
    adjusted = holm([test.p for test in tests.values()])
    alpha = ALPHA / len(family) if family else ALPHA
    return {
        name: _compared(samples, tests[name], p, alpha, margin, least_ns)
        for (name, samples), p in zip(family.items(), adjusted, strict=True)
    }


def _compared(
    samples: Samples, test: permutation.Test, p: float, alpha: float, margin: float, least_ns: float
) -> Compared:
    baseline_ns, candidate_ns = statistics.fmean(samples.baseline), statistics.fmean(samples.candidate)
    differs = p <= ALPHA
    difference = _bounds(test.interval(alpha), 0.0, candidate_ns - baseline_ns, differs)
    quotient = candidate_ns / baseline_ns if baseline_ns else 1.0
    ratio = _bounds(test.ratio_interval(alpha), 1.0, quotient, differs)
    share = Bounds(ratio.low - 1, ratio.high - 1) if ratio else None
    margin_ns = max(margin * baseline_ns, least_ns)
    verdict: Verdict = "inconclusive"
    if differs:
        verdict = "faster" if candidate_ns < baseline_ns else "slower"
    elif _inside(share, margin) or _inside(difference, least_ns):
        verdict = "equivalent"
    needed = power.runs_needed(samples, margin_ns, alpha)
    if needed is not None and needed <= min(samples.sizes):
        needed = power.runs_for_width(samples, margin_ns, alpha)
    return Compared(
        verdict=verdict,
        baseline_ns=baseline_ns,
        candidate_ns=candidate_ns,
        runs=samples.sizes,
        difference=difference,
        share=share,
        confidence=permutation.confidence(test.relabellings, alpha),
        p=p,
        exact=test.exact,
        margin_ns=margin_ns,
        smallest_ns=power.smallest_ns(samples, alpha),
        runs_needed=needed,
    )


def _bounds(interval: tuple[float, float] | None, zero: float, value: float, differs: bool) -> Bounds | None:
    """Return the interval, cut at `zero` if the family's test excludes zero."""
    if interval is None:
        return None
    low, high = interval
    if differs:
        low, high = (max(low, zero), high) if value > zero else (low, min(high, zero))
    return Bounds(low, high)


def _inside(bounds: Bounds | None, margin: float) -> bool:
    return bounds is not None and -margin < bounds.low and bounds.high < margin
