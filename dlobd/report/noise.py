"""Text of a machine's noise, and of the differences that runs on it can show."""

from __future__ import annotations

from dlobd.bundle.noise import ENOUGH_RUNS, run_variation
from dlobd.compare import power
from dlobd.compare.permutation import ALPHA
from dlobd.record.run import Noise
from dlobd.report import text


def machine_line(noise: Noise) -> str:
    """Describe a measurement of the machine."""
    return f"{_loop(noise)}; {_wait(noise)} at the moment."


def run_line(noise: Noise, runs: int = ENOUGH_RUNS) -> str:
    """Describe the variation of earlier runs, and the smallest difference that `runs` runs of each side can show."""
    walls = noise.earlier_walls_ns or ()
    if len(walls) < 2:
        return f"run-to-run variation unknown ({len(walls)} earlier runs). {_loop(noise)}; {_wait(noise)}"
    took = f"{len(walls)} earlier runs took {min(walls) / 1e9:.1f} to {max(walls) / 1e9:.1f} s"
    variation, share = run_variation(walls), smallest_share(noise, runs)
    if variation is None or share is None:
        return f"{took}, too few to state the power of a comparison; {_wait(noise)}"
    return (
        f"{took}, standard deviation {text.percentage(variation, 1)}; {runs} runs of each side detect "
        f"{text.percentage(share, 1)} or more; {_wait(noise)}"
    )


def smallest_share(noise: Noise, runs: int) -> float | None:
    """Return the smallest difference that `runs` runs of each side detect, as a share of the wall time."""
    detectable = power.multiple(runs, runs, False, ALPHA)
    variation = run_variation(noise.earlier_walls_ns or ())
    return None if variation is None or detectable is None else detectable * variation


def _wait(noise: Noise) -> str:
    return f"timers fire up to {(noise.sleep_over_p99_ns + noise.loopback_p99_ns) / 1e6:.2f} ms late"


def _loop(noise: Noise) -> str:
    variation = text.percentage(noise.loop_variation, 1)
    return f"CPU loops of 25 ms vary by {variation}, which does not predict the variation of runs"
