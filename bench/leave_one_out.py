"""Prediction intervals for exchanges of a model, from the residuals of the other models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from dlobd.compare.power import student_quantile
from dlobd.micro.prediction import CONFIDENCE


@dataclass(frozen=True, slots=True)
class Measured:
    """Wire times of a model's exchange over a link. Prediction and measurement must be of different launches."""

    model: str
    exchange: str
    link: str
    predicted_ns: float
    measured_ns: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Prediction interval of a point, from `others` points of other models; None with fewer than two of them."""

    point: Measured
    others: int
    interval_ns: tuple[float, float] | None


def leave_one_out(points: Sequence[Measured]) -> list[Predicted]:
    """Return the 90 % prediction interval of each point, from the points of all other models.

    With the n residuals r = ln(measured / predicted) of the other models, their mean m and standard deviation s, the
    logarithm of the measured time lies in

        ln(predicted) + m +- t(0.95, n - 1) * s * sqrt(1 + 1/n)

    This is Student's interval for one further value of a normal distribution (Hahn, "Factors for Calculating Two-Sided
    Prediction Intervals for Samples from a Normal Distribution", JASA 64, 1969). It takes the residuals for
    independent; those of one model are not, so that with few models the interval is too narrow.
    """
    found = []
    for point in points:
        others = [math.log(one.measured_ns / one.predicted_ns) for one in points if one.model != point.model]
        count, interval_ns = len(others), None
        if count > 1:
            half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * stdev(others) * math.sqrt(1 + 1 / count)
            middle = math.log(point.predicted_ns) + fmean(others)
            interval_ns = math.exp(middle - half), math.exp(middle + half)
        found.append(Predicted(point, count, interval_ns))
    return found
