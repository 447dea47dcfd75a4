"""Prediction intervals over models."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.leave_one_out import Measured, leave_one_out
from dlobd.micro import prediction


def test_an_interval_is_from_the_residuals_of_the_other_models() -> None:
    ratios = {"a": (1.1, 1.3), "b": (1.2,), "c": (5.0,)}
    points = [Measured(model, "ring", "tcp", 100.0, 100 * one) for model, every in ratios.items() for one in every]
    found = {one.point: one for one in leave_one_out(points)}
    assert [one.others for one in found.values()] == [2, 2, 3, 3]
    last = found[points[-1]]
    logs = [math.log(one) for one in (1.1, 1.3, 1.2)]
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / 2)
    half = 2.919986 * deviation * math.sqrt(4 / 3)  # Student's quantile at 0.95 with 2 degrees of freedom, from a table
    assert last.interval_ns == pytest.approx([100 * math.exp(mean - half), 100 * math.exp(mean + half)], rel=1e-6)


def test_one_other_point_gives_no_interval() -> None:
    first, second = leave_one_out([Measured(model, "ring", "tcp", 1.0, 2.0) for model in "ab"])
    assert (first.others, first.interval_ns) == (1, None)
    assert second.point.model == "b"
    assert leave_one_out([]) == []


def test_intervals_hold_for_nine_of_ten_points() -> None:
    draw = np.random.default_rng(5)
    held = []
    for _ in range(500):
        points = [Measured(f"{k}", "ring", "tcp", 10.0, 10 * math.exp(0.3 + 0.2 * draw.normal())) for k in range(6)]
        low_ns, high_ns = leave_one_out(points)[0].interval_ns or (0, 0)
        held.append(low_ns <= points[0].measured_ns <= high_ns)
    assert np.mean(held) == pytest.approx(prediction.CONFIDENCE, abs=0.04)  # three standard errors
