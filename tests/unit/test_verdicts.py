"""Verdicts of families of quantities: false alarms of a family, consistent intervals, gates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlobd.compare.gate import growth
from dlobd.compare.permutation import Samples, holm
from dlobd.compare.verdicts import Bounds, compare_family

S = 10**9


def paired(random: np.random.Generator, size: int, factor: float = 1, scatter: float = 0.05) -> Samples:
    """Return runs of 40 s that drift between repeats and scatter; the candidate takes `factor` times as long."""
    drift = 1 + random.normal(0, 0.1, size)
    first, second = (40 * S * (drift + random.normal(0, scatter, size)) for _ in range(2))
    return Samples(tuple(map(int, first)), tuple(int(value) for value in factor * second), True)


def test_holm_adjusts_step_by_step() -> None:
    """For 0.01, 0.04, 0.03: times 3, times 2 for the next, and never less than the previous value."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_four_verdicts() -> None:
    random = np.random.default_rng(1)
    for made, verdict in (
        (paired(random, 8, 1.3), "slower"),
        (paired(random, 8, 0.7), "faster"),
        (paired(random, 12, 1, 0.01), "equivalent"),
        (paired(random, 6), "inconclusive"),
    ):
        assert compare_family({"wall": made})["wall"].verdict == verdict


def test_seconds_percent_and_verdict_come_from_one_test() -> None:
    random = np.random.default_rng(2)
    for factor in (1, 1.05, 1.1, 1.3):
        found = compare_family({"wall": paired(random, 8, factor)})["wall"]
        assert found.difference.low <= found.difference_ns <= found.difference.high
        assert found.difference_share == pytest.approx(found.candidate_ns / found.baseline_ns - 1)
        assert (found.difference.low > 0) == (found.share.low > 0) == (found.verdict == "slower")
        assert found.confidence == 1 - 2 * 6 / 256


def test_too_few_runs_give_no_verdict() -> None:
    """Five pairs cannot be significant at 5 %, nor can eight pairs with nine layers."""
    random = np.random.default_rng(3)
    few = compare_family({"wall": paired(random, 5, 1.5)})["wall"]
    assert (few.verdict, few.difference, few.confidence, few.smallest_ns) == ("inconclusive", None, None, None)
    assert few.runs_needed is not None
    layers = compare_family({str(layer): paired(random, 8, 3) for layer in range(9)})
    assert {one.verdict for one in layers.values()} == {"inconclusive"}


def test_an_interval_ends_at_zero_where_holm_excludes_zero() -> None:
    """Three layers differ greatly and one slightly: it is significant at its own step, while its joint interval would
    contain zero."""
    random = np.random.default_rng(0)
    clear = {name: paired(random, 10, 2) for name in "abc"}
    for seed in range(2000):
        close = paired(np.random.default_rng(seed), 10, 1.1)
        found = compare_family({**clear, "close": close})["close"]
        if found.verdict == "slower" and found.difference.low == 0:
            assert found.share.low == 0
            return
        assert (found.verdict == "slower") == (found.difference.low > 0)
    pytest.fail("no case in which Holm's test has more power")


def test_false_alarms_over_all_layers_stay_below_five_percent() -> None:
    """600 comparisons of nine equal layers in ten pairs: at most 5 % have a verdict of faster or slower, within two
    standard errors, and at least 1 % do."""
    random = np.random.default_rng(4)
    cases, alarms = 600, 0
    for _ in range(cases):
        shared = random.normal(0, 0.05, 10)
        family = {}
        for layer in range(9):
            first, second = (S * (10 + shared + 0.1 * random.exponential(size=10)) for _ in range(2))
            family[layer] = Samples(tuple(map(int, first)), tuple(map(int, second)), True)
        alarms += any(one.verdict in ("faster", "slower") for one in compare_family(family).values())
    assert 0.01 < alarms / cases < 0.05 + 2 * math.sqrt(0.05 * 0.95 / cases)


def test_small_and_new_layers_need_seconds_to_grow() -> None:
    random = np.random.default_rng(5)
    tiny = Samples(*(tuple(map(int, 1e6 * random.exponential(size=12))) for _ in range(2)), True)
    assert compare_family({"client": tiny})["client"].verdict == "inconclusive"
    assert compare_family({"client": tiny}, least_ns=0.2 * S)["client"].verdict == "equivalent"
    new = compare_family({"user": Samples((0,) * 8, tuple(range(S, 9 * S, S)), True)})["user"]
    assert new.difference_share is None
    assert new.share is None
    assert new.difference == Bounds(pytest.approx(7 / 3 * S), pytest.approx(20 / 3 * S))
    assert growth(new, 0.05, least_ns=S) == "grown"
    assert growth(new, 0.05, least_ns=10 * S) == "kept"


def test_growth_is_decided_by_the_interval() -> None:
    random = np.random.default_rng(6)
    cases = [(1.3, 0.02, "grown"), (1.0, 0.02, "kept"), (1.05, 0.05, "undecided"), (0.7, 0.05, "kept")]
    for factor, scatter, expected in cases:
        found = compare_family({"wall": paired(random, 10, factor, scatter)})["wall"]
        assert growth(found, 0.05) == expected
    large = compare_family({"wall": paired(random, 10, 1.3, 0.02)})["wall"]
    assert growth(large, 0.05, least_ns=100 * S) == "kept"
    assert growth(compare_family({"wall": paired(random, 3, 5)})["wall"], 0.05) == "undecided"
