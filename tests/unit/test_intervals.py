"""How often intervals hold the truth, by simulation: few repeats, heavy tails, drift; and counts of false alarms.

Each rate is from thousands of experiments with a fixed seed; `SLACK` is four standard errors of it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.studies import estimates
from analysis.studies.estimates import centre, hodges_lehmann, mean, ratio, subsample_mean
from bench import comparisons, false_alarms, short_runs
from bench.false_alarms import ORDERS, Count
from dlobd.compare import median as medians
from dlobd.record.run import Run
from tests import records

EXPERIMENTS = 4000
SLACK = 4 * np.sqrt(0.05 * 0.95 / EXPERIMENTS)

Noise = Callable[[Any, tuple[int, int]], Any]

SYMMETRIC: dict[str, Noise] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "heavy tails": lambda random, shape: random.standard_t(2, size=shape),
    "one repeat in ten far off": lambda random, shape: (
        random.normal(size=shape) + (random.random(shape) < 0.1) * random.normal(0, 8, shape)
    ),
}
"""Median and mean are 0."""


def lognormal(random: Any, shape: tuple[int, int]) -> Any:
    """Return skewed noise with the median 0; a third of its mean is from the highest tenth."""
    return np.exp(random.normal(0, 0.8, shape)) - 1


def held(groups: estimates.Groups, figures: Any, truth: float) -> float:
    """Return the share of rows with the truth in their interval, for many experiments at once."""
    ordered = np.sort(figures, axis=1)
    inside = (ordered[:, groups.outside - 1] <= truth) & (truth <= ordered[:, -groups.outside])
    return float(inside.mean())


def of_medians(values: Any, truth: float) -> tuple[float, float]:
    """Return the share of rows with the truth in the interval of the median, and its coverage."""
    found = [medians.median(row) for row in values.tolist()]
    inside = [one.low <= truth <= one.high for one in found if one and one.low is not None and one.high is not None]
    assert len(inside) == len(values)
    return float(np.mean(inside)), found[0].coverage or 0 if found[0] else 0


@pytest.mark.parametrize("repeats", [6, 7, 9, 12])
@pytest.mark.parametrize("noise", [*SYMMETRIC.values(), lognormal], ids=[*SYMMETRIC, "lognormal"])
def test_intervals_of_medians_have_their_coverage_for_any_distribution(noise: Noise, repeats: int) -> None:
    values = 10 + noise(np.random.default_rng(repeats), (EXPERIMENTS, repeats))
    rate, coverage = of_medians(values, 10)
    assert rate == pytest.approx(coverage, abs=SLACK)
    assert coverage >= 0.95


@pytest.mark.parametrize("repeats", [6, 7, 9, 12])
@pytest.mark.parametrize("noise", SYMMETRIC.values(), ids=SYMMETRIC)
def test_intervals_of_means_and_centres_have_their_coverage(noise: Noise, repeats: int) -> None:
    values = noise(np.random.default_rng(repeats), (EXPERIMENTS, repeats))
    for groups in (estimates.subsample_mean(values), estimates.hodges_lehmann(values)):
        assert held(groups, groups.means, 0) == pytest.approx(groups.coverage, abs=SLACK)


def test_drawn_sets_hold_as_often_as_all_of_them() -> None:
    groups = estimates.subsample_mean(np.random.default_rng(1).normal(size=(EXPERIMENTS, 15)))
    assert groups.means.shape[1] <= estimates.MOST_SETS
    assert held(groups, groups.means, 0) == pytest.approx(groups.coverage, abs=SLACK)


def blocks(random: Any, repeats: int, noise: Noise, drift: float) -> tuple[Any, Any]:
    """Return equally long walls of two ways in blocks of random order; each block drifts by `drift`."""
    swapped = random.integers(2, size=(EXPERIMENTS, repeats))
    place = 2 * np.arange(repeats)
    one, other = (100 + drift / 2 * (place + which) for which in (swapped, 1 - swapped))
    return one + noise(random, swapped.shape), other + noise(random, swapped.shape)


@pytest.mark.parametrize("drift", [0.0, 2.0])
@pytest.mark.parametrize("noise", [*SYMMETRIC.values(), lognormal], ids=[*SYMMETRIC, "lognormal"])
def test_no_difference_is_found_where_there_is_none(noise: Noise, drift: float) -> None:
    """False alarms of six repeats: at most 1 in 32, also with skewed noise, and with a drift that exceeds it."""
    one, other = blocks(np.random.default_rng(4), 6, noise, drift)
    for groups in (estimates.subsample_mean(one - other), estimates.hodges_lehmann(one - other)):
        assert 1 - held(groups, groups.means, 0) == pytest.approx(1 / 32, abs=SLACK)
    assert 1 - of_medians(one / other, 1)[0] == pytest.approx(1 / 32, abs=SLACK)


def test_ratios_of_means_are_held() -> None:
    random = np.random.default_rng(5)
    speed = np.exp(random.normal(0, 0.3, (EXPERIMENTS, 7)))
    below = speed * (100 + 5 * random.normal(size=speed.shape))
    above = speed * (200 + 10 * random.normal(size=speed.shape))
    over, under = estimates.subsample_mean(above), estimates.subsample_mean(below)
    assert held(over, over.means / under.means, 2) == pytest.approx(over.coverage, abs=SLACK)
    assert of_medians(above / below, 2)[0] == pytest.approx(0.984, abs=SLACK)


def test_centres_and_subsamples_are_computed_by_hand() -> None:
    assert centre([1.0, 2.0, 3.0]).value == 2
    assert centre([1.0, 2.0, 3.0, 4.0, 1000.0]).value == 3
    assert hodges_lehmann([[1.0, 2.0], [10.0, 20.0]]).means.tolist() == [[1, 1.5, 2], [10, 15, 20]]
    found = subsample_mean([[1.0, 2.0, 6.0], [11.0, 12.0, 16.0]]).means
    assert sorted(found[0]) == [1, 1.5, 2, 3, 3.5, 4, 6]
    assert np.allclose(found[1] - found[0], 10)
    assert (mean([6.0] * 6).low, mean([6.0] * 6).high, mean([6.0] * 6).half_width) == (6, 6, 0)
    certain = ratio([6.0, 12.0, 3.0, 6.0, 9.0, 30.0], [2.0, 4.0, 1.0, 2.0, 3.0, 10.0])
    assert (certain.value, certain.low, certain.high) == pytest.approx((3, 3, 3))


@pytest.mark.parametrize("repeats", [6, 7, 8, 10])
def test_coverage_counts_all_signs(repeats: int) -> None:
    """Count the intervals that contain the truth 0, over all signs of the deviations."""
    distances = np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0])[:repeats]
    held = {"sets": 0, "pairs": 0}
    for signs in itertools.product((-1, 1), repeat=repeats):
        held["sets"] += bool(mean(list(distances * signs)).holds(0))
        held["pairs"] += bool(centre(list(distances * signs)).holds(0))
    for name, one in (("sets", mean(list(distances))), ("pairs", centre(list(distances)))):
        assert Fraction(held[name], 2**repeats) == Fraction(one.coverage or 0)
        assert 0.95 <= (one.coverage or 0) < 0.97


def test_six_repeats_reach_from_the_lowest_to_the_highest_and_five_have_no_interval() -> None:
    """Six have a coverage of 31/32; five would have 15/16, below 95 %."""
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.0]
    for found in (mean(values), centre(values)):
        assert (found.low, found.high, found.coverage) == (1, 9, 31 / 32)
    for found in (mean(values[:5]), centre(values[:5]), mean([3.0])):
        assert (found.low, found.high, found.coverage, found.holds(3.0), found.half_width) == (None,) * 5
    assert estimates.ENOUGH == 6
    assert mean(values, confidence=0.9).coverage == 1 - 2 * 3 / 64
    assert mean(values, confidence=0.99) == estimates.Estimate(np.mean(values))


def test_many_repeats_draw_reproducible_subsets() -> None:
    drawn = estimates._members(13)
    assert len(np.unique(drawn, axis=0)) == len(drawn) <= estimates.MOST_SETS
    assert drawn.sum(axis=1).min() >= 1
    values = [*np.random.default_rng(3).normal(10, 1, 40)]
    assert mean(values) == mean(values)
    assert 0.95 <= (mean(values).coverage or 0) < 0.951
    # as wide as Student's, of normal values
    assert mean(values).half_width == pytest.approx(2.023 * np.std(values, ddof=1) / np.sqrt(40) / 10, rel=0.15)


TOP = Path(__file__).parents[2]
S = 10**9


def pool(scatter: float, runs: int = 40) -> list[Run]:
    chance = random.Random(1)
    made = []
    for number in range(runs):
        spent = {
            name: seconds * chance.gauss(1, scatter) for name, seconds in (("spark", 20), ("hdfs", 8), ("yarn", 6))
        }
        rows = [records.layer_row(name, name, round(seconds * S)) for name, seconds in spent.items()]
        wall_ns = sum(row["ns"] for row in rows)
        made.append(records.run(f"20260102T0304{number:02}Z-0a1b", layers=rows, wall_ns=wall_ns, unattributed_ns=0))
    return made


def test_limits_are_exact() -> None:
    assert Count(0, 59).at_most == pytest.approx(0.0495, abs=1e-4)
    assert Count(59, 59).at_least == pytest.approx(1 - 0.0495, abs=1e-4)
    assert (Count(59, 59).at_most, Count(0, 59).at_least) == (1, 0)
    assert Count(1, 4).share == 0.25


@pytest.mark.parametrize("order", ORDERS)
def test_pairs_share_no_run_and_stay_within_a_batch(order: str) -> None:
    runs = [{"batch": 1 + (number >= 25), "wall_ns": number} for number in range(35)]
    pairs = list(false_alarms._pairs(runs, order, 6, random.Random(0)))
    used = [run["wall_ns"] for pair in pairs for side in pair for run in side]
    assert sorted(used) == list(range(24))


@pytest.mark.slow
def test_false_alarms_of_recorded_runs_stay_below_five_percent() -> None:
    """Recorded short runs in six pairs: at most 2/2^6, within three standard errors. One side after the other has more,
    because a drift looks like a difference."""
    runs = short_runs.read(TOP / comparisons.SHORT)[:3000]
    blocks = false_alarms.short_alarms(runs, ORDERS[0], 6)
    assert blocks.wall.of == 250
    assert blocks.wall.share <= 2 / 2**6 + 3 * (2 / 2**6 / blocks.wall.of) ** 0.5
    after = false_alarms.short_alarms(runs, ORDERS[2], 6)
    assert after.wall.found > blocks.wall.found


def test_a_planted_layer_is_named() -> None:
    """+20 % of a layer with 4 % scatter, 12 runs of each side: named first in at least 38 of 40 checks; without
    a planted difference at most 5 % fail."""
    runs = pool(0.04)
    assert false_alarms.gates(runs, 12, 40, 0.2, ["spark", "hdfs", "yarn"]).found >= 38
    assert false_alarms.gates(runs, 12, 40).found <= 2
    assert false_alarms.runs_needed(runs, "spark") is not None


@pytest.mark.parametrize("paired", [True, False])
def test_comparisons_drawn_from_a_pool_raise_few_alarms(paired: bool) -> None:
    found = false_alarms.stack_alarms(pool(0.05), paired, 6, 100)
    assert found.wall.found <= 10
    assert found.layers.found <= 10
