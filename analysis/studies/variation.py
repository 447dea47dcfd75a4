"""Variation of the cost of an epoch: between runs, and between the epochs of a run.

    epoch j of run i = mean x (1 + run i + rest ij)

One-way random effects, estimated by analysis of variance (Searle, Casella and McCulloch 1992, Variance Components,
chapter 3). Each launcher and input has its own mean. Both variances, as fractions of the mean, depend on the machine
and are equal for all launchers and inputs. In a longer run, the variation between runs remains, and the variation
between epochs averages out.
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
    """Standard deviations as fractions of the cost of an epoch. `degrees`: degrees of freedom of `between_runs`."""

    between_runs: float
    within_runs: float
    degrees: int

    def of_run(self, epochs: int) -> float:
        """Return the standard deviation of the mean cost per epoch of one run."""
        return math.hypot(self.between_runs, self.within_runs / math.sqrt(epochs))


def variation(groups: Iterable[Sequence[Run]], epochs: int) -> Variation | None:
    """Estimate the variation from groups of runs with this number of epochs, without the first epoch (graph tracing).

    None if no group has two such runs, or if there are fewer than two epochs after the first epoch.
    """
    count = epochs - 1
    within = between = 0.0
    runs = means = 0
    for group in groups:
        rows = [[epoch.ns for epoch in run.epochs[1:]] for run in group if len(run.epochs) == epochs]
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
    """Estimate the variation under the assumption that all of it is between runs: a slow run is slow in all epochs.

    Args:
        costs: cost of an epoch in each repeat.
    """
    if len(costs) < 2:
        return Variation(0.0, 0.0, 1)
    return Variation(stdev(costs) / fmean(costs), 0.0, len(costs) - 1)
