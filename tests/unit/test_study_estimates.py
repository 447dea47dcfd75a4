"""Exact intervals from repeats, computed by hand. test_coverage.py tests their coverage."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from analysis.studies import estimates
from analysis.studies.estimates import centre, hodges_lehmann, mean, ratio, subsample_mean


def test_the_hodges_lehmann_centre_is_robust() -> None:
    """The means of pairs of 1, 2, 3 are 1, 1.5, 2, 2, 2.5, 3. A thousand in place of 5 does not move the centre."""
    assert centre([1.0, 2.0, 3.0]).value == 2
    assert centre([1.0, 2.0, 3.0, 4.0, 1000.0]).value == 3
    assert hodges_lehmann([[1.0, 2.0], [10.0, 20.0]]).means.tolist() == [[1, 1.5, 2], [10, 15, 20]]


def test_subsamples_are_all_subsets_of_repeats() -> None:
    found = subsample_mean([[1.0, 2.0, 6.0], [11.0, 12.0, 16.0]]).means
    assert sorted(found[0]) == [1, 1.5, 2, 3, 3.5, 4, 6]
    assert np.allclose(found[1] - found[0], 10)


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


def test_constants_are_certain() -> None:
    assert (mean([6.0] * 6).low, mean([6.0] * 6).high, mean([6.0] * 6).half_width) == (6, 6, 0)
    certain = ratio([6.0, 12.0, 3.0, 6.0, 9.0, 30.0], [2.0, 4.0, 1.0, 2.0, 3.0, 10.0])
    assert (certain.value, certain.low, certain.high) == pytest.approx((3, 3, 3))


def test_many_repeats_draw_reproducible_subsets() -> None:
    drawn = estimates._members(13)
    assert len(np.unique(drawn, axis=0)) == len(drawn) <= estimates.MOST_SETS
    assert drawn.sum(axis=1).min() >= 1
    values = [*np.random.default_rng(3).normal(10, 1, 40)]
    assert mean(values) == mean(values)
    assert 0.95 <= (mean(values).coverage or 0) < 0.951
    # as wide as Student's, of normal values
    assert mean(values).half_width == pytest.approx(2.023 * np.std(values, ddof=1) / np.sqrt(40) / 10, rel=0.15)
