"""Clocks: one axis for own marks and for other people's wall-clock stamps."""

from __future__ import annotations

import os
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.schema import ClockAnchor
from dlobd.tracing import clock
from dlobd.tracing.clock import WallToMonotonic

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
