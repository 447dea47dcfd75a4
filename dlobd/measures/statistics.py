"""Computes quantiles of many values, such as the durations of a run's steps."""

import math
from collections.abc import Sequence

CONFIDENCE = 0.95


def fewest(q: float) -> int:
    """Return the smallest sample whose maximum bounds quantile `q` with 95 % confidence."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(q))


def element(ordered: Sequence[int], q: float) -> int | None:
    """Return element floor(`q` n), counted from 0, of `n` values in rising order; None without values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def quantile(ordered: Sequence[int], q: float) -> int | None:
    """Return `element`; None for fewer than `fewest(q)` values, which do not bound the quantile."""
    return element(ordered, q) if len(ordered) >= fewest(q) else None
