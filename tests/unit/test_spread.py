"""Medians, quartiles and ratios: worked by hand, and by properties."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.attribution.statistics import ratio, spread

VALUES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20)


def test_what_was_not_measured_is_left_out_and_nothing_stays_nothing() -> None:
    """None is not a zero."""
    found = spread([3.0, None, 1.0, 2.0, 4.0])
    assert (found.n, found.median, found.low, found.high, found.q1, found.q3) == (4, 2.5, 1.0, 4.0, 1.75, 3.25)
    assert spread([None]) == spread([])
    assert (spread([]).n, spread([]).median) == (0, None)
    assert ratio([None], [1.0]).ratio is None


@given(VALUES)
def test_the_five_figures_are_in_order(values: list[float]) -> None:
    """Minimum, first quartile, median, third quartile, maximum."""
    found = spread(values)
    five = [found.low, found.q1, found.median, found.q3, found.high]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(five))  # type: ignore[operator]


def test_a_ratio_of_constants_is_certain() -> None:
    """Nothing varies, so the interval is the ratio."""
    found = ratio([6.0] * 5, [10.0] * 5)
    assert (found.ratio, found.low, found.high) == (0.6, 0.6, 0.6)


def test_a_ratio_lies_in_its_interval_which_is_the_same_each_time() -> None:
    """Two samples that overlap: the interval is wide and holds the ratio."""
    over, under = [5.0, 6.0, 7.0, 6.5, 5.5], [9.0, 10.0, 11.0, 10.5, 9.5]
    found = ratio(over, under)
    assert found == ratio(reversed(over), under)
    assert found.ratio == pytest.approx(0.6)
    assert found.low is not None
    assert found.high is not None
    assert 5 / 11 <= found.low < 0.6 < found.high <= 7 / 9


def test_two_values_have_no_interval() -> None:
    """Of two repeats nobody can say how sure their ratio is."""
    found = ratio([1.0, 2.0], [2.0, 4.0, 6.0])
    assert (found.ratio, found.low, found.high) == (0.375, None, None)
