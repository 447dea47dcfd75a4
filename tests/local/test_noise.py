"""The noise of this machine, measured."""

from __future__ import annotations

import dataclasses

import pytest

from dlobd.run import machine_noise


@pytest.mark.parametrize(
    "effort",
    [machine_noise.SHORT, dataclasses.replace(machine_noise.FULL, sleeps=20, loops=8, pings=200)],
    ids=["short", "full"],
)
def test_everything_is_measured(monkeypatch: pytest.MonkeyPatch, effort: machine_noise.Effort) -> None:
    monkeypatch.setattr(machine_noise, "LOOP_NS", 1_000_000)
    found = machine_noise.measure(effort)
    assert found.timer_ns > 0
    assert 0 < found.sleep_over_p50_ns <= found.sleep_over_p99_ns
    assert 0 < found.loopback_p50_ns <= found.loopback_p99_ns
    assert found.loop_variation > 0
    assert found.loop_slowest >= 1
    assert found.steal_share is None or 0 <= found.steal_share <= 1
