"""Intervals from repeats: as often right as they say, also from few repeats and where one is disturbed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlobd.report import paired
from dlobd.report.paired import Estimate, estimate, hodges_lehmann, resampled


def test_the_centre_of_pairs_is_hardly_moved_by_one_far_value() -> None:
    """Of 1, 2, 3 the pairs' means are 1, 1.5, 2, 2, 2.5, 3. A thousand in place of 5 moves the centre nowhere."""
    assert hodges_lehmann([1.0, 2.0, 3.0]) == 2
    assert hodges_lehmann([1.0, 2.0, 3.0, 4.0, 1000.0]) == 3
    rows = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    assert hodges_lehmann(rows, axis=1).tolist() == [2, 20]
    assert hodges_lehmann(rows.T, axis=0).tolist() == [2, 20]


def test_samples_are_resampled_together() -> None:
    """A column has the same repeats in each row: what is equal within repeats stays equal; the same each time."""
    values = [3.0, 1.0, 4.0, 1.5, 9.0]
    drawn = resampled([values, [value + 7 for value in values]])
    assert drawn.shape == (2, paired.RESAMPLES)
    assert np.allclose(drawn[1] - drawn[0], 7)
    assert drawn[0].std() > 0
    assert (resampled([values]) == resampled([values])).all()


def test_constants_are_certain_and_few_repeats_have_no_interval() -> None:
    """Nothing varies: the interval is the value. Four repeats: no interval, and no verdict on what is inside."""
    certain = estimate(6.0, resampled([[6.0] * 5])[0], 5)
    assert (certain.value, certain.low, certain.high, certain.half_width) == (6, 6, 6, 0)
    few = estimate(6.0, resampled([[6.0] * 4])[0], 4)
    assert (few.low, few.high, few.half_width, few.holds(6)) == (None, None, None, None)


def test_what_is_added_to_widened_resamples_is_not_widened() -> None:
    """By plain percentiles they give the interval of the estimate; a far wider known part hardly changes by them."""
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.0]
    drawn = resampled([values])[0]
    whole = estimate(3.0, drawn, 6)
    alone = paired.plain(3.0, paired.widened(drawn, 6), 6)
    assert (alone.low, alone.high) == pytest.approx((whole.low, whole.high), rel=0.2, abs=0.7)
    known = 100 * np.random.default_rng(1).normal(size=drawn.size)
    sum_of_both = paired.plain(3.0, paired.widened(drawn, 6) + known, 6)
    assert sum_of_both.low == pytest.approx(-196 + 3, abs=10)
    assert paired.plain(3.0, paired.widened(drawn, 4), 4).low is None


def test_an_estimate_in_words() -> None:
    """Three digits; what is infinite is never."""
    assert str(Estimate(39.812, 37.9, 41.25)) == "39.8 (37.9 to 41.2)"
    assert str(Estimate(1.5)) == "1.5"
    assert str(Estimate(12.0, 8.0, float("inf"))) == "12 (8 to never)"
    assert Estimate(10.0, 8.0, 12.0).half_width == pytest.approx(0.2)
    assert [Estimate(10.0, 8.0, 12.0).holds(value) for value in (7.9, 8.0, 12.1)] == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("centre", [np.mean, hodges_lehmann])
@pytest.mark.parametrize("disturbed", [False, True])
def test_the_truth_is_inside_as_often_as_said(centre: Any, disturbed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly: of six repeats in 93 of 100 cases instead of 95; plain percentiles hold the truth in 86 only."""
    monkeypatch.setattr(paired, "RESAMPLES", 2000)
    random = np.random.default_rng(7)
    inside = 0
    for _ in range(500):
        values = random.normal(10, 1, 6)
        if disturbed:  # one repeat in ten is far off, to either side
            values += (random.random(6) < 0.1) * random.normal(0, 8, 6)
        inside += bool(estimate(float(centre(values)), resampled([values], centre)[0], 6).holds(10))
    assert inside >= 455
