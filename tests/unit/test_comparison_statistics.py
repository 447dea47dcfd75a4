"""The statistics of comparisons: permutation test, power in simulation, verdicts of families."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dlobd.compare import permutation, power
from dlobd.compare.gate import growth
from dlobd.compare.permutation import Samples, holm
from dlobd.compare.verdicts import Bounds, compare_family

DESIGNS = pytest.mark.parametrize("paired", [True, False], ids=["paired", "two samples"])


def drawn(seed: int, first: int, second: int, paired: bool) -> Samples:
    random = np.random.default_rng(seed)
    sizes = first, second
    values = [(1000 + 100 * random.exponential(size=size)).round(-1).astype(int) for size in sizes]
    return Samples(tuple(map(int, values[0])), tuple(map(int, values[1])), paired)


def difference(first: Any, second: Any, axis: int) -> Any:
    return np.mean(second, axis=axis) - np.mean(first, axis=axis)


@DESIGNS
@pytest.mark.parametrize("seed", range(8))
def test_p_is_that_of_scipy(paired: bool, seed: int) -> None:
    sides = drawn(seed, 7, 7 if paired else 5, paired)
    kind = "samples" if paired else "independent"
    theirs = stats.permutation_test(
        (sides.baseline, sides.candidate), difference, permutation_type=kind, n_resamples=np.inf, vectorized=True
    )
    assert permutation.test(sides).p == pytest.approx(theirs.pvalue)


@DESIGNS
@pytest.mark.parametrize("seed", range(4))
def test_an_interval_contains_all_values_that_the_test_accepts(paired: bool, seed: int) -> None:
    """The test accepts shifted or scaled samples just inside each end, and rejects them just outside."""
    sides = drawn(seed, 8, 8 if paired else 7, paired)
    found = permutation.test(sides)
    interval, ratios = found.interval(0.05), found.ratio_interval(0.05)
    assert interval is not None
    assert ratios is not None
    for end, outwards in zip(interval, (-1, 1), strict=True):
        for step, alike in ((-0.01, True), (0.01, False)):
            shifted = tuple(value - end - outwards * step for value in sides.candidate)
            assert (permutation.test(Samples(sides.baseline, shifted, paired)).p > 0.05) == alike  # type: ignore[arg-type]
    for end, outwards in zip(ratios, (-1, 1), strict=True):
        for step, alike in ((-1e-6, True), (1e-6, False)):
            stretched = tuple(value * (end + outwards * step) for value in sides.baseline)
            assert (permutation.test(Samples(stretched, sides.candidate, paired)).p > 0.05) == alike  # type: ignore[arg-type]


@DESIGNS
def test_intervals_have_their_stated_coverage(paired: bool) -> None:
    """2000 cases of drifting pairs, and of samples, from a skewed distribution: `confidence` of them contain the truth,
    within three standard errors."""
    random = np.random.default_rng(3)
    size, cases, inside = 7, 2000, 0
    said = permutation.confidence(permutation.count(size, size, paired), 0.05)
    for _ in range(cases):
        drift = random.normal(0, 500, size) if paired else 0
        first, second = ((10_000 + drift + 100 * random.exponential(size=size)).astype(int) for _ in range(2))
        sides = Samples(tuple(map(int, first)), tuple(int(value) + 70 for value in second), paired)
        low, high = permutation.test(sides).interval(0.05) or (0, 0)
        inside += low <= 70 <= high
    assert abs(inside / cases - said) < 3 * (said * (1 - said) / cases) ** 0.5


def test_the_fewest_runs_for_significance() -> None:
    """Two relabellings must be at most 5 % of all: of 2^6 signs, of 70 ways to choose 4 of 8. Fewer runs have no
    interval."""
    assert (permutation.fewest(0.05, paired=True), permutation.fewest(0.05, paired=False)) == (6, 4)
    assert permutation.fewest(0.05 / 9, paired=True) == 9
    for size, paired in ((5, True), (3, False)):
        found = permutation.test(Samples((1,) * size, (1000 + size,) * size, paired))
        assert found.p > 0.05
        assert found.interval(0.05) is None
    assert permutation.confidence(2**6, 0.05) == 1 - 2 / 64
    assert permutation.confidence(2**5, 0.05) is None


@DESIGNS
def test_many_runs_are_tested_by_a_reproducible_draw(paired: bool) -> None:
    sides = drawn(1, 18, 18, paired)
    found = permutation.test(sides)
    assert not found.exact
    assert found.p == permutation.test(sides).p
    kind = "samples" if paired else "independent"
    theirs = stats.permutation_test(
        (sides.baseline, sides.candidate), difference, permutation_type=kind, n_resamples=20_000, vectorized=True, rng=1
    )
    assert found.p == pytest.approx(theirs.pvalue, abs=0.02)


def test_incomplete_samples_are_refused_and_zeros_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="no runs"):
        Samples((), (1,), False)
    with pytest.raises(ValueError, match="paired samples differ"):
        Samples((1, 2), (1,), True)
    found = permutation.test(Samples((0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), True))
    assert found.ratios is None
    assert found.interval(0.05) == (1, 1)


def sides(random: np.random.Generator, size: int, paired: bool, scatter: float = 100, added: float = 0) -> Samples:
    """Return runs of 10,000 with normal scatter; paired runs share a drift, and their differences scatter."""
    drift = random.normal(0, 500, size) if paired else np.zeros(size)
    each = scatter / 2**0.5 if paired else scatter
    first, second = (10_000 + drift + random.normal(0, each, size) for _ in range(2))
    return Samples(tuple(map(round, first)), tuple(map(round, second + added)), paired)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "paired"), [(6, True), (10, True), (13, True), (4, False), (8, False)])
def test_the_smallest_difference_is_detected_in_four_of_five(size: int, paired: bool) -> None:
    shown = power.multiple(size, size, paired, 0.05)
    random = np.random.default_rng(5)
    found = sum(
        compare_family({"wall": sides(random, size, paired, added=shown * 100)})["wall"].verdict == "slower"
        for _ in range(500)
    )
    assert 370 <= found <= 430


@pytest.mark.parametrize("paired", [True, False])
def test_the_needed_runs_suffice(paired: bool) -> None:
    """Comparisons with as many runs as a pilot asks for detect a difference of the margin in at least 80 of 100 cases,
    over all pilots."""
    random = np.random.default_rng(6)
    found = asked = 0
    for _ in range(100):
        pilot = sides(random, 6, paired, scatter=800)
        needed = power.runs_needed(pilot, 1000, 0.05)
        if needed is None:
            continue
        asked += 1
        fresh = sides(random, needed, paired, scatter=800, added=1000)
        found += compare_family({"wall": fresh})["wall"].verdict == "slower"
    assert asked == 100
    assert found / asked >= 0.8


def test_scatter_and_effect_decide_the_number_of_runs() -> None:
    made = sides(np.random.default_rng(1), 8, True)
    needed = [power.runs_needed(made, effect, 0.05) for effect in (30, 100, 1000, 1e6)]
    assert needed == sorted((each for each in needed if each is not None), reverse=True)
    assert needed[-1] == 6
    assert power.runs_needed(made, 0.001, 0.05) is None
    assert power.runs_needed(made, 0, 0.05) is None
    same = Samples((5,) * 6, (5,) * 6, True)
    assert power.runs_needed(same, 1, 0.05) == 6
    single = Samples((1,), (2,), False)
    assert power.scatter_ns(single) is None
    assert power.smallest_ns(single, 0.05) is None
    assert power.runs_needed(single, 1, 0.05) is None
    assert power.runs_for_width(single, 1, 0.05) is None


def test_runs_for_a_width_give_a_narrow_interval() -> None:
    """Nearly all intervals have at most that width, because the upper limit of the scatter counts."""
    random = np.random.default_rng(2)
    narrow = 0
    for _ in range(50):
        needed = power.runs_for_width(sides(random, 10, True), 100, 0.05)
        assert needed is not None
        bounds = compare_family({"wall": sides(random, needed, True)})["wall"].difference
        narrow += bounds.high - bounds.low <= 100
    assert narrow >= 35


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
