"""Offsets between clocks, against clocks whose offset is known: the truth is never outside of what is said."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

import pytest

from dlobd.tracing.clock_offset import Exchange, Offset

SECOND_NS = 10**9


class Simulation:
    """Two clocks over 60 s: an offset, a rate within 100 ppm, at most one step; unequal and noisy delays."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.offset_ns = self.random.randint(-(10**15), 10**15)
        self.rate = self.random.uniform(-100e-6, 100e-6)
        self.step_at_ns = self.random.randint(20, 40) * SECOND_NS if self.random.random() < 0.3 else None
        self.step_ns = self.random.choice((-1, 1)) * self.random.randint(2_000_000, 2_000_000_000)
        self.there_ns, self.back_ns = self.random.randint(5_000, 40_000), self.random.randint(5_000, 40_000)

    def truth_ns(self, a_ns: float) -> float:
        """Clock b minus clock a when clock a shows `a_ns`."""
        stepped = self.step_at_ns is not None and a_ns >= self.step_at_ns
        return self.offset_ns + self.rate * a_ns + (self.step_ns if stepped else 0)

    def exchange(self, at_ns: int) -> Exchange:
        arrives = at_ns + self._delay(self.there_ns)
        answers = arrives + self.random.randint(1_000, 20_000)
        returns = answers + self._delay(self.back_ns)
        return Exchange(at_ns, self._b(arrives), self._b(answers), returns)

    def exchanges(self) -> list[Exchange]:
        times = [k * 1_000_000 for k in range(10)] + [60 * SECOND_NS + k * 1_000_000 for k in range(10)]
        times += [k * 5 * SECOND_NS + j * 1_000_000 for k in range(1, 12) for j in range(3)]
        found = [self.exchange(at_ns + self.random.randint(0, 500_000)) for at_ns in times]
        self.random.shuffle(found)
        return found

    def _delay(self, least_ns: int) -> int:
        return least_ns + int(self.random.expovariate(1 / 15_000))  # now and then a long one

    def _b(self, a_ns: int) -> int:
        return a_ns + round(self.truth_ns(a_ns))


def test_the_truth_is_inside_in_1000_of_1000_simulations() -> None:
    widths, steps = [], 0
    for seed in range(1000):
        simulation = Simulation(seed)
        offset = Offset(simulation.exchanges())
        times = [simulation.random.randint(0, 60 * SECOND_NS) for _ in range(40)]
        if simulation.step_at_ns is not None:
            steps += 1
            times += [simulation.step_at_ns - 1, simulation.step_at_ns, simulation.step_at_ns + 1]
            ((earliest_ns, latest_ns),) = offset.steps
            assert earliest_ns <= simulation.step_at_ns <= latest_ns
        else:
            assert offset.steps == ()
            widths += [offset.at(at_ns).width_ns for at_ns in times]
        for at_ns in times:
            found = offset.at(at_ns)
            assert found.lo_ns <= simulation.truth_ns(at_ns) <= found.hi_ns, (seed, at_ns)
    assert steps > 200
    assert median(widths) <= 50_000


def exchanges(truth: Callable[[int], int], *at_ns: int) -> list[Exchange]:
    """Exchanges of 10 us each way."""
    return [Exchange(t, t + 10_000 + truth(t + 10_000), t + 10_000 + truth(t + 10_000), t + 20_000) for t in at_ns]


def test_exchanges_bound_the_offset_by_round_trip_and_rate() -> None:
    offset = Offset(exchanges(lambda t: 7_000_000, 1_000_000))
    found = offset.at(1_010_000)
    assert found.lo_ns <= 7_000_000 <= found.hi_ns
    assert found.width_ns == pytest.approx(20_000, abs=20)
    assert offset.at(1_010_000 + SECOND_NS).width_ns == pytest.approx(20_000 + 2 * 500_000, rel=0.01)
    offset = Offset(exchanges(lambda t: t // 10_000, 0, 60 * SECOND_NS))
    found = offset.at(30 * SECOND_NS)
    assert found.lo_ns <= 3_000_000 <= found.hi_ns
    assert found.width_ns <= 20_010


def test_a_stepped_clock_is_two_lines() -> None:
    hour = 3_600 * SECOND_NS
    offset = Offset(exchanges(lambda t: hour if t > 5 * SECOND_NS else 0, 0, SECOND_NS, 9 * SECOND_NS, 10 * SECOND_NS))
    assert offset.steps == ((SECOND_NS + 20_000, 9 * SECOND_NS),)
    assert offset.at(SECOND_NS).hi_ns < SECOND_NS
    assert offset.at(10 * SECOND_NS).lo_ns > hour - SECOND_NS
    gap = offset.at(5 * SECOND_NS)
    assert gap.lo_ns <= 0
    assert gap.hi_ns >= hour


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="the offset is unknown"):
        Offset([])
    with pytest.raises(ValueError, match="ran backwards"):
        Offset([Exchange(10, 20, 20, 9)])
    with pytest.raises(ValueError, match="ran backwards"):
        Offset([Exchange(10, 20, 19, 30)])
