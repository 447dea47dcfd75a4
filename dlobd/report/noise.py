"""Text of a machine's noise, and of the differences that runs on it can show."""

from __future__ import annotations

from dlobd.bundle.noise import ENOUGH_RUNS, Noise
from dlobd.compare import power
from dlobd.compare.permutation import ALPHA


def machine_line(noise: Noise) -> str:
    """Describe a measurement of the machine."""
    return f"{_loop(noise)}; {_wait(noise)}. This is the current state."


def run_line(noise: Noise, runs: int = ENOUGH_RUNS) -> str:
    """Describe the variation of earlier runs, and the smallest difference that `runs` runs of each side can show."""
    walls = noise.earlier_walls_ns or ()
    if len(walls) < 2:
        return f"variation of runs here is unknown ({len(walls)} earlier); {_loop(noise)}; {_wait(noise)}"
    took = f"{len(walls)} earlier runs took {min(walls) / 1e9:.1f} to {max(walls) / 1e9:.1f} s"
    share = smallest_share(noise, runs)
    if share is None:
        return f"{took}, too few to state the power of a comparison; {_wait(noise)}"
    variation = f"standard deviation {noise.run_variation:.1%}"
    return f"{took}, {variation}; {runs} runs of each side detect {share:.1%} or more; {_wait(noise)}"


def smallest_share(noise: Noise, runs: int) -> float | None:
    """Return the smallest difference of walls that `runs` runs of each side detect, as a share of the wall."""
    detectable = power.multiple(runs, runs, False, ALPHA)
    return None if noise.run_variation is None or detectable is None else detectable * noise.run_variation


def _wait(noise: Noise) -> str:
    return f"a wait ends up to {noise.latest_ms:.2f} ms late"


def _loop(noise: Noise) -> str:
    return f"equal loops of 25 ms vary by {noise.loop_variation:.1%}, which does not predict the variation of runs"
