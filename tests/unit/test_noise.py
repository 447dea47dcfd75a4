"""The noise of a machine, and what drowns in it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dlobd.run import machine_noise
from dlobd.run.machine_noise import Noise

QUIET = Noise(50, 60_000, 90_000, 0.01, 1.02, 0.0, 20_000, 40_000, 0.1)


@pytest.mark.parametrize(
    "effort",
    [machine_noise.SHORT, dataclasses.replace(machine_noise.FULL, sleeps=20, loops=8, pings=200)],
    ids=["short", "full"],
)
def test_everything_is_measured(monkeypatch: pytest.MonkeyPatch, effort: machine_noise.Effort) -> None:
    """Each figure is there and possible; a tail is not below its median."""
    monkeypatch.setattr(machine_noise, "LOOP_NS", 1_000_000)
    found = machine_noise.measure(effort)
    assert found.timer_ns > 0
    assert 0 < found.sleep_over_p50_ns <= found.sleep_over_p99_ns
    assert 0 < found.loopback_p50_ns <= found.loopback_p99_ns
    assert found.loop_variation > 0
    assert found.loop_slowest >= 1
    assert found.steal_share is None or 0 <= found.steal_share <= 1


def test_more_runs_show_smaller_effects() -> None:
    """Four times the runs show half the effect; a noisier machine shows less."""
    assert QUIET.smallest_effect(8) == pytest.approx(QUIET.smallest_effect(2) / 2)
    assert QUIET.smallest_effect(2) == pytest.approx(2.8 * 0.01, rel=0.01)
    noisy = dataclasses.replace(QUIET, loop_variation=0.1)
    assert noisy.smallest_effect(5) == pytest.approx(10 * QUIET.smallest_effect(5))
    assert math.isfinite(noisy.smallest_effect(2))


def test_one_run_has_no_spread() -> None:
    """It can show nothing."""
    with pytest.raises(ValueError, match="at least 2 runs"):
        QUIET.smallest_effect(1)


def test_it_is_one_sentence() -> None:
    """With the number of runs, the share and the wait."""
    assert QUIET.sentence(5) == (
        "With 5 runs a side, a difference below 1.8% of CPU-bound time, or below 0.13 ms in a single wait, cannot be "
        "told from noise on this machine now."
    )
    assert QUIET.short(5) == "5 runs a side cannot show below 1.8% of CPU time, 0.13 ms of a wait"
