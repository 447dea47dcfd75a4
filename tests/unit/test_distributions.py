"""Quantiles of Student's t and of chi-squared."""

from __future__ import annotations

import pytest
from scipy import stats

from dlobd.compare.distributions import chi_squared_quantile, student_quantile

FREEDOMS = (1, 2, 3, 4, 5, 10, 11, 30, 101, 500, 1998)
PROBABILITIES = (0.005, 0.1, 0.5, 0.8, 0.975, 0.9995)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    for probability in PROBABILITIES:
        assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), 1e-9, 1e-9)
        assert chi_squared_quantile(probability, freedom) == pytest.approx(stats.chi2.ppf(probability, freedom), 1e-9)
