"""By how much equal runs differ: what earlier runs say of it, and what a machine measured of itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH_RUNS = 6
"""Of fewer runs their standard deviation says too little."""

DIFFERENCE = 2.77
"""Standard deviations by which two equal runs differ in 95 of 100 cases: 1.96 times the root of 2."""

UNKNOWN_NOISE = 0.10
"""Of the wall, where too few runs of the experiment are stored to say how much they differ: on the machines of
docs/results.md single runs differ by 5 to 13 %."""

Z = 1.96 + 0.84
"""A two-sided test at 5 % that finds a true effect in 80 of 100 cases; normal approximation for two equal groups."""


def run_variation(walls_ns: Sequence[int]) -> float | None:
    """Standard deviation of these walls, as a share of their mean; None for fewer than `ENOUGH_RUNS`."""
    return statistics.stdev(walls_ns) / statistics.fmean(walls_ns) if len(walls_ns) >= ENOUGH_RUNS else None


def noise_ns(earlier_walls_ns: Sequence[int], wall_ns: int) -> int:
    """By how much two equal runs differ in 95 of 100 cases, or what is taken for it; nanoseconds of the wall."""
    variation = run_variation(earlier_walls_ns)
    return round((UNKNOWN_NOISE if variation is None else DIFFERENCE * variation) * wall_ns)


@dataclass(frozen=True, slots=True)
class Noise:
    """Times in nanoseconds; shares of 1; None where the kernel does not say."""

    timer_ns: int  # median distance of two readings of the clock
    sleep_over_p50_ns: int  # how much later than asked a sleep of 1 ms ends
    sleep_over_p99_ns: int
    loop_variation: float  # standard deviation over mean of a fixed piece of work of about 25 ms
    loop_slowest: float  # slowest over median of them
    steal_share: float | None  # CPU time that the hypervisor gave to others meanwhile
    loopback_p50_ns: int  # round trip of 64 bytes by TCP over loopback
    loopback_p99_ns: int
    load_1m: float
    machine: str = ""  # whose it is

    earlier_walls_ns: tuple[int, ...] | None = None  # of earlier runs of the experiment on this machine, oldest first

    @property
    def run_variation(self) -> float | None:
        """Standard deviation of earlier runs' walls, as a share of their mean; None for fewer than `ENOUGH_RUNS`."""
        return run_variation(self.earlier_walls_ns or ())

    def smallest_effect(self, runs: int) -> float | None:
        """The smallest difference of walls, as a share, that `runs` runs against as many would show: two-sided, 5 %,
        power 80 %, normal approximation; None where it is not known how much runs differ.

        Raises:
            ValueError: one run has no spread.
        """
        if runs < 2:
            raise ValueError("two groups of at least 2 runs are needed")
        return None if self.run_variation is None else Z * self.run_variation * math.sqrt(2 / runs)

    def sentence(self) -> str:
        """What this moment's measurement says, and what it does not."""
        return f"{self._loop()}; a wait ends up to {self._wait_ms:.2f} ms late. This is of now."

    def short(self, runs: int = ENOUGH_RUNS) -> str:
        """What it means for runs, and for a single wait."""
        wait = f"a wait ends up to {self._wait_ms:.2f} ms late"
        walls = self.earlier_walls_ns or ()
        if len(walls) < 2:
            return f"how much runs differ here is unknown (earlier ones: {len(walls)}); {self._loop()}; {wait}"
        took = f"{len(walls)} earlier runs took {min(walls) / 1e9:.1f} to {max(walls) / 1e9:.1f} s"
        share = self.smallest_effect(runs)
        if share is None:
            return f"{took}, too few to say what a comparison can show; {wait}"
        return (
            f"{took}, standard deviation {self.run_variation:.1%}; {runs} a side cannot show below {share:.1%}; {wait}"
        )

    @property
    def _wait_ms(self) -> float:
        return (self.sleep_over_p99_ns + self.loopback_p99_ns) / 1e6

    def _loop(self) -> str:
        return f"equal loops of 25 ms vary by {self.loop_variation:.1%}, which cannot stand for a run"
