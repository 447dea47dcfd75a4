"""Medians, quartiles, ratios and quantiles; test_intervals.py tests how often intervals hold the truth."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.compare.median import Estimate, difference, fewest_repeats, median, ratio, spread

VALUES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20)


def test_missing_values_are_left_out_and_estimates_have_words() -> None:
    found = spread([3.0, None, 1.0, 2.0, 4.0])
    assert (found.n, found.median, found.low, found.high, found.q1, found.q3) == (4, 2.5, 1.0, 4.0, 1.75, 3.25)
    assert spread([None]) == spread([])
    assert (spread([]).n, spread([]).median) == (0, None)
    assert median([None]) is ratio([None], [1.0]) is difference([1.0], [None]) is None
    assert str(Estimate(39.812, 37.9, 41.25, 0.969)) == "39.8 (37.9 to 41.2)"
    assert str(Estimate(1.5)) == "1.5"
    assert str(Estimate(12.0, 8.0, float("inf"), 0.969)) == "12 (8 to never)"
    assert Estimate(10.0, 8.0, 12.0, 0.969).half_width == pytest.approx(0.2)
    assert [Estimate(10.0, 8.0, 12.0, 0.969).holds(value) for value in (7.9, 8.0, 12.1)] == [False, True, False]
    assert Estimate(10.0, 8.0, 12.0, 0.969).times(0.5) == Estimate(5.0, 4.0, 6.0, 0.969)
    assert Estimate(10.0).times(2) == Estimate(20.0)


@given(VALUES)
def test_the_five_figures_are_in_order(values: list[float]) -> None:
    found = spread(values)
    five = [found.low, found.q1, found.median, found.q3, found.high]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(five))  # type: ignore[operator]


@given(VALUES)
def test_six_values_have_an_interval_around_the_median(values: list[float]) -> None:
    found = median(values)
    assert (found.low is not None) == (len(values) >= 6) == (len(values) >= fewest_repeats())
    if found.low is not None and found.high is not None:
        assert {found.low, found.high} <= set(values)
        assert found.low <= found.value <= found.high
        assert 0.95 <= (found.coverage or 0) < 1


@pytest.mark.parametrize(
    ("n", "k", "coverage"), [(6, 1, 0.969), (7, 1, 0.984), (8, 1, 0.992), (9, 2, 0.961), (15, 4, 0.965), (20, 6, 0.959)]
)
def test_the_ends_equal_published_tables(n: int, k: int, coverage: float) -> None:
    """k-th lowest and k-th highest, as in tables of the sign test (Conover 1999)."""
    found = median(range(1, n + 1))
    assert (found.low, found.high, round(found.coverage or 0, 3)) == (k, n + 1 - k, coverage)


def test_a_higher_confidence_needs_more_values() -> None:
    """Eight for 99 %; nine for ten joint comparisons at 95 %, each at 99.5 %."""
    assert [fewest_repeats(sure) for sure in (0.95, 0.99, 0.995)] == [6, 8, 9]
    seven = median(range(7), confidence=0.99)
    assert seven == Estimate(3)
    eight = median(range(8), confidence=0.99)
    assert (eight.low, eight.high) == (0, 7)


def test_ratios_are_taken_within_a_repeat() -> None:
    below = [10.0, 20.0, None, 40.0, 50.0, 60.0, 70.0, 80.0]
    above = [6.0, 12.0, 18.0, 24.0, 30.0, 36.0, None, 48.0]
    found = ratio(above, below)
    assert (found.value, found.low, found.high, found.coverage) == (0.6, 0.6, 0.6, 31 / 32)
    apart = difference([3.0, 5.0, 9.0], [2.0, 3.0, 4.0])
    assert apart == Estimate(2.0)
    assert ratio([1.0], [0.0]) is None
    with pytest.raises(ValueError, match="longer"):
        ratio([1.0], [1.0, 2.0])
