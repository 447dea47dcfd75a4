"""Quantiles of Student's t and of chi-squared for whole degrees of freedom, without scipy.

scipy would be two thirds of an installation that only reads bundles. Both distribution functions are finite or
fast-converging sums (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3, 26.7.4 and 6.5.29); tests
compare the quantiles with scipy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

ITERATIONS = 200
"""Bisections: each halves the interval, and doubles have 52 bits of mantissa."""


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t at `probability` in (0, 1)."""
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    return _inverse(lambda t: (1 + _student_within(t, freedom)) / 2, probability)


def chi_squared_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of the chi-squared distribution at `probability` in (0, 1)."""
    return _inverse(lambda x: _lower_gamma(freedom / 2, x / 2), probability)


def _student_within(t: float, freedom: int) -> float:
    """Return the probability of |T| < t."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = 0.0
    for power in range(odd, freedom - 1, 2):
        if power > 1:
            term *= cosine * cosine * (power - 1) / power
        else:
            term = cosine if odd else 1.0
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _lower_gamma(a: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function P(a, x)."""
    if x <= 0:
        return 0.0
    term = math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    total, n = term, a
    while term > total * 1e-17:
        n += 1
        term *= x / n
        total += term
    return total


def _inverse(function: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 1.0
    while function(high) < value:
        low, high = high, 2 * high
    for _ in range(ITERATIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if function(middle) < value else (low, middle)
    return high
