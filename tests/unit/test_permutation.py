"""The permutation test equals scipy's, its intervals are its own inversion, and they hold what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dlobd.compare import permutation
from dlobd.compare.permutation import Samples

DESIGNS = pytest.mark.parametrize("blocks", [True, False], ids=["blocks", "two samples"])


def drawn(seed: int, first: int, second: int, blocks: bool) -> Samples:
    """Skewed values, of which some are equal."""
    random = np.random.default_rng(seed)
    sizes = first, second
    values = [(1000 + 100 * random.exponential(size=size)).round(-1).astype(int) for size in sizes]
    return Samples(tuple(map(int, values[0])), tuple(map(int, values[1])), blocks)


def difference(first: Any, second: Any, axis: int) -> Any:
    """Of means."""
    return np.mean(second, axis=axis) - np.mean(first, axis=axis)


@DESIGNS
@pytest.mark.parametrize("seed", range(8))
def test_p_is_that_of_scipy(blocks: bool, seed: int) -> None:
    """Also with ties, and for sides of different size."""
    sides = drawn(seed, 7, 7 if blocks else 5, blocks)
    kind = "samples" if blocks else "independent"
    theirs = stats.permutation_test(
        (sides.baseline, sides.candidate), difference, permutation_type=kind, n_resamples=np.inf, vectorized=True
    )
    assert permutation.test(sides).p == pytest.approx(theirs.pvalue)


@DESIGNS
@pytest.mark.parametrize("seed", range(4))
def test_an_interval_holds_what_its_test_does_not_reject(blocks: bool, seed: int) -> None:
    """Just inside of either end the shifted, or stretched, sides are alike by the same test; just outside not."""
    sides = drawn(seed, 8, 8 if blocks else 7, blocks)
    found = permutation.test(sides)
    interval, ratios = found.interval(0.05), found.ratio_interval(0.05)
    assert interval is not None
    assert ratios is not None
    for end, outwards in zip(interval, (-1, 1), strict=True):
        for step, alike in ((-0.01, True), (0.01, False)):
            shifted = tuple(value - end - outwards * step for value in sides.candidate)
            assert (permutation.test(Samples(sides.baseline, shifted, blocks)).p > 0.05) == alike  # type: ignore[arg-type]
    for end, outwards in zip(ratios, (-1, 1), strict=True):
        for step, alike in ((-1e-6, True), (1e-6, False)):
            stretched = tuple(value * (end + outwards * step) for value in sides.baseline)
            assert (permutation.test(Samples(stretched, sides.candidate, blocks)).p > 0.05) == alike  # type: ignore[arg-type]


@DESIGNS
def test_intervals_of_difference_and_ratio_agree_on_none(blocks: bool) -> None:
    """Both or neither hold that the sides are alike, as it is the same test."""
    for seed in range(200):
        found = permutation.test(drawn(seed, 8, 8, blocks))
        low, high = found.interval(0.2) or (0, 0)
        small, large = found.ratio_interval(0.2) or (0, 0)
        assert (low <= 0 <= high) == (small <= 1 <= large) == (found.p > 0.2)


@DESIGNS
def test_the_truth_is_inside_as_often_as_said(blocks: bool) -> None:
    """Of blocks that drift, and of samples, from a skewed distribution: in as many of 2000 cases as `confidence` says,
    to within three standard errors."""
    random = np.random.default_rng(3)
    size, cases, inside = 7, 2000, 0
    said = permutation.confidence(permutation.count(size, size, blocks), 0.05)
    assert said is not None
    for _ in range(cases):
        drift = random.normal(0, 500, size) if blocks else 0
        first, second = ((10_000 + drift + 100 * random.exponential(size=size)).astype(int) for _ in range(2))
        sides = Samples(tuple(map(int, first)), tuple(int(value) + 70 for value in second), blocks)
        low, high = permutation.test(sides).interval(0.05) or (0, 0)
        inside += low <= 70 <= high
    assert abs(inside / cases - said) < 3 * (said * (1 - said) / cases) ** 0.5


def test_so_many_runs_are_needed_for_any_significance() -> None:
    """Two of all relabellings must be no more than 5 %: of 2^6 signs, of 70 ways to choose 4 of 8. Fewer runs have no
    interval, however far they lie apart."""
    assert (permutation.fewest(0.05, paired=True), permutation.fewest(0.05, paired=False)) == (6, 4)
    assert permutation.fewest(0.05 / 9, paired=True) == 9
    for size, blocks in ((5, True), (3, False)):
        found = permutation.test(Samples((1,) * size, (1000 + size,) * size, blocks))
        assert found.p > 0.05
        assert found.interval(0.05) is None
    assert permutation.confidence(2**6, 0.05) == 1 - 2 / 64
    assert permutation.confidence(2**5, 0.05) is None


@DESIGNS
def test_many_runs_are_tested_by_a_draw_that_is_the_same_each_time(blocks: bool) -> None:
    """And near the exact one, which scipy's own draw is near to as well."""
    sides = drawn(1, 18, 18, blocks)
    found = permutation.test(sides)
    assert not found.exact
    assert found.p == permutation.test(sides).p
    kind = "samples" if blocks else "independent"
    theirs = stats.permutation_test(
        (sides.baseline, sides.candidate), difference, permutation_type=kind, n_resamples=20_000, vectorized=True, rng=1
    )
    assert found.p == pytest.approx(theirs.pvalue, abs=0.02)


def test_a_side_without_runs_and_a_block_without_its_other_run_are_refused() -> None:
    """They are no sides."""
    with pytest.raises(ValueError, match="without runs"):
        Samples((), (1,), False)
    with pytest.raises(ValueError, match="a pair"):
        Samples((1, 2), (1,), True)


def test_runs_without_any_time_have_no_ratio() -> None:
    """A layer that was not used in some runs: the difference has an interval, the ratio none."""
    found = permutation.test(Samples((0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), True))
    assert found.ratios is None
    assert found.interval(0.05) == (1, 1)
