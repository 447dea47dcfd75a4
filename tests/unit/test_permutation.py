"""The permutation test equals scipy's; its intervals invert it and have their stated coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dlobd.compare import permutation
from dlobd.compare.permutation import Samples

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
    with pytest.raises(ValueError, match="without runs"):
        Samples((), (1,), False)
    with pytest.raises(ValueError, match="a pair"):
        Samples((1, 2), (1,), True)
    found = permutation.test(Samples((0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), True))
    assert found.ratios is None
    assert found.interval(0.05) == (1, 1)
