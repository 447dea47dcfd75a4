"""Power in simulation: detectable differences, and sufficient numbers of runs."""

from __future__ import annotations

import numpy as np
import pytest

from dlobd.compare import power
from dlobd.compare.permutation import Samples
from dlobd.compare.verdicts import compare_family


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
