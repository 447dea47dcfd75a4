"""Clocks: one axis for own marks and wall-clock timestamps, and bounds of the offset of two clocks."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.schema import ClockAnchor
from dlobd.tracing import clock
from dlobd.tracing.clock import WallToMonotonic
from dlobd.tracing.clock_offset import Exchange, Offset

BOOT_NS = 1_700_000_000_000_000_000


def anchor(monotonic_ns: int, offset_ns: int = BOOT_NS) -> ClockAnchor:
    return ClockAnchor("h/b/t", monotonic_ns, monotonic_ns + offset_ns, 1)


@given(st.lists(st.integers(0, 10**15), min_size=1), st.integers(0, 10**15))
def test_a_steady_wall_clock_maps_exactly(readings: list[int], at_ns: int) -> None:
    place = WallToMonotonic([anchor(reading) for reading in readings])
    assert place.ns(at_ns + BOOT_NS) == at_ns
    assert place.step_ns == 0


def test_without_the_nearest_anchor_nothing_is_placed() -> None:
    hour = 3_600 * 10**9
    before, after = anchor(1_000), anchor(10 * hour, BOOT_NS - hour)
    place = WallToMonotonic([after, before])
    assert place.ns(2_000 + BOOT_NS) == 2_000
    assert place.ns(10 * hour + 5 + BOOT_NS - hour) == 10 * hour + 5
    assert place.step_ns == hour
    with pytest.raises(ValueError, match="no clock anchor"):
        WallToMonotonic([])


def test_anchors_and_starts_are_read_from_both_clocks() -> None:
    before = time.monotonic_ns()
    found = clock.anchor()
    after = time.monotonic_ns()
    assert before <= found.monotonic_ns <= after
    assert 0 < found.error_ns <= after - before
    assert found.domain == clock.domain()
    placed = WallToMonotonic([found]).ns(found.wall_ns)
    assert placed == found.monotonic_ns
    own = clock.process_start_ns()
    assert own < clock.monotonic_ns()
    assert abs(own - (clock.process_start_ns(os.getpid()) or 0)) < clock.tick_ns()


@given(st.lists(st.integers(0, 10**12), min_size=1, unique=True), st.integers(-500, 500))
def test_slewing_is_no_step(readings: list[int], ppm: int) -> None:
    assert clock.stepped_ns([anchor(at, BOOT_NS + at * ppm // 1_000_000) for at in readings]) == 0


@given(st.integers(1, 10**5), st.sampled_from([-(10**9), 10**9]), st.integers(20, 10**7))
def test_a_step_is_found_with_its_size_and_sign(seconds: int, sign: int, milliseconds: int) -> None:
    step_ns = sign // 1000 * milliseconds
    at = [0, 10**9, 2 * 10**9, seconds * 10**9 + 2 * 10**9]
    anchors = [anchor(at[0]), anchor(at[1]), anchor(at[2], BOOT_NS + step_ns), anchor(at[3], BOOT_NS + step_ns)]
    assert clock.stepped_ns(anchors[::-1]) == step_ns
    other = ClockAnchor("other", 10**9, 5, 1)
    assert clock.stepped_ns([*anchors[:2], other]) == 0


@pytest.mark.parametrize(
    ("kernel", "yarn", "name"),
    [
        ("node-7", None, "node-7"),
        ("node-7", "", "node-7"),
        ("node-7", "10.0.0.7", "node-7"),
        ("node-7", "localhost", "node-7"),
        ("node-7", "localhost.localdomain", "node-7"),
        ("node-7", "node-7.cluster.example", "node-7"),
        ("node-7.cluster.example", "node-7", "node-7.cluster.example"),
        ("2f1c9a4b77de", "dlobd-worker-1.dlobd-lan", "dlobd-worker-1.dlobd-lan"),
        ("node-7", "node-70", "node-70"),
    ],
)
def test_a_host_is_called_as_its_kernel_does_or_as_yarn_where_that_is_quite_another_name(
    kernel: str, yarn: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: kernel)
    monkeypatch.delenv("NM_HOST", raising=False)
    if yarn is not None:
        monkeypatch.setenv("NM_HOST", yarn)
    assert clock.host_name() == name
    assert clock.domain().partition("/")[0] == name


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
        """Return clock b minus clock a when clock a shows `a_ns`."""
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
    """Return exchanges of 10 us each way."""
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
