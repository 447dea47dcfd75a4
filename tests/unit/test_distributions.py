"""Quantiles for the power of a comparison, against those of scipy."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from dlobd.compare.power import UPPER, student_quantile, upper_ratio


@pytest.mark.parametrize("freedom", [5, 6, 11, 30, 101, 1998])
@pytest.mark.parametrize("probability", [0.1, 0.8, 0.95, 0.975])
def test_quantiles_of_student_are_within_a_percent(freedom: int, probability: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), 0.012)


@pytest.mark.parametrize(("freedom", "error"), [(1, 1e-9), (2, 0.04), (3, 0.01), (10, 0.001), (500, 0.001)])
def test_the_upper_limit_of_a_standard_deviation(freedom: int, error: float) -> None:
    exact = math.sqrt(freedom / stats.chi2.ppf(1 - UPPER, freedom))
    assert upper_ratio(freedom) == pytest.approx(exact, error)
