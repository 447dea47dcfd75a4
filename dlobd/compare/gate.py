"""Gate of `dlobd check`: pass, regression or inconclusive.

Confidence intervals decide, not means. An interval entirely above the limit is a regression; an interval entirely below
the limit passes. Wall time and layers can fail the gate; only the wall time can pass it.
"""

import math
from dataclasses import dataclass
from typing import Literal

from dlobd.compare.comparison import Comparison, Pair
from dlobd.compare.figures import WALL
from dlobd.compare.verdicts import Bounds, Compared

Growth = Literal["grown", "kept", "undecided"]
Outcome = Literal["pass", "regression", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Judged:
    """Comparison of one quantity of a pair."""

    pair: Pair
    name: str
    compared: Compared
    growth: Growth


@dataclass(frozen=True, slots=True)
class Gate:
    """Outcome of the gate.

    grown: quantities above the limit, largest growth in seconds first.
    open_walls, open_layers: quantities with intervals that contain the limit; layers do not affect the outcome.
    runs_needed: estimated runs of each side to decide the wall times; None if decided, or if the number is unknown.
    """

    outcome: Outcome
    grown: tuple[Judged, ...]
    open_walls: tuple[Judged, ...]
    open_layers: tuple[Judged, ...]
    runs_needed: int | None = None


def gate(comparison: Comparison) -> Gate:
    """Decide the gate for a comparison; the comparison's margin is the limit."""
    judged = [
        Judged(pair, name, one, growth(one, comparison.margin, 0.0 if name == WALL else comparison.least_ns))
        for pair in comparison.pairs
        for name, one in pair.quantities.items()
    ]
    grown = sorted(
        (one for one in judged if one.growth == "grown"), key=lambda one: one.compared.difference_ns, reverse=True
    )
    walls = tuple(one for one in judged if one.growth == "undecided" and one.name == WALL)
    layers = tuple(one for one in judged if one.growth == "undecided" and one.name != WALL)
    if grown or not walls:
        return Gate("regression" if grown else "pass", tuple(grown), walls, layers)
    known = [one.compared.runs_needed for one in walls if one.compared.runs_needed is not None]
    return Gate("inconclusive", (), walls, layers, max(known) if len(known) == len(walls) else None)


def growth(compared: Compared, margin: float, least_ns: float = 0.0) -> Growth:
    """Return True if the candidate exceeds the baseline by more than the fraction `margin` and more than `least_ns`."""
    if compared.difference is None:
        return "undecided"
    # without an interval of ratios, treat the baseline's mean as exact
    share = compared.share or _relative(compared.difference, compared.baseline_ns)
    if share.low > margin and compared.difference.low > least_ns:
        return "grown"
    return "kept" if share.high <= margin or compared.difference.high <= least_ns else "undecided"


def _relative(difference: Bounds, baseline_ns: float) -> Bounds:
    if baseline_ns:
        return Bounds(difference.low / baseline_ns, difference.high / baseline_ns)
    return Bounds(math.inf if difference.low > 0 else -math.inf, math.inf)
