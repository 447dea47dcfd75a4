"""How the cost of an epoch varies: from run to run, and from epoch to epoch of one run. Pure.

    epoch j of run i = mean x (1 + run i + rest ij)

One-way random effects, estimated by analysis of variance (Searle, Casella and McCulloch 1992, Variance Components,
chapter 3). The mean is a way's own; the two variances, as shares of it, are taken to be the machine's, and so the same
for all ways. What all epochs of a run have in common stays in a longer run; what they differ by averages out in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from dlobd.record.run import Run


@dataclass(frozen=True, slots=True)
class Variation:
    """Standard deviations, as shares of an epoch's cost; `degrees` of freedom has that between runs."""

    between_runs: float
    within_runs: float
    degrees: int

    def of_run(self, epochs: int) -> float:
        """That of the mean cost of an epoch of one run."""
        return math.hypot(self.between_runs, self.within_runs / math.sqrt(epochs))


def variation(ways: Iterable[Sequence[Run]], epochs: int) -> Variation | None:
    """From the runs of each way that have so many epochs; their first one, which has TensorFlow's tracing, is left out.

    None where no way has two such runs, or they have fewer than two epochs besides the first.
    """
    count = epochs - 1
    within = between = 0.0
    runs = means = 0
    for way in ways:
        rows = [[epoch.ns for epoch in run.epochs[1:]] for run in way if len(run.epochs) == epochs]
        if count < 2 or len(rows) < 2:
            continue
        costs = np.array(rows, dtype=float)
        costs /= costs.mean()
        of_runs = costs.mean(axis=1, keepdims=True)
        within += float(((costs - of_runs) ** 2).sum())
        between += float(count * ((of_runs - 1) ** 2).sum())
        runs += len(rows)
        means += 1
    if not runs:
        return None
    within /= runs * (count - 1)
    between /= runs - means
    return Variation(math.sqrt(max(0.0, between - within) / count), math.sqrt(within), runs - means)


def slow_throughout(costs: Sequence[float]) -> Variation:
    """Where epochs cannot be told from runs: a run that is slow is slow in all of its epochs.

    Args:
        costs: of an epoch, in each repeat; one alone does not vary.
    """
    if len(costs) < 2:
        return Variation(0.0, 0.0, 1)
    return Variation(stdev(costs) / fmean(costs), 0.0, len(costs) - 1)
