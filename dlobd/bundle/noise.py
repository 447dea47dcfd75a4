"""Noise: the variation of equal runs, and measurements of the machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH_RUNS = 6
"""Fewer runs give no useful standard deviation."""

DIFFERENCE = 2.77
"""Number of standard deviations by which two equal runs differ in 95 % of cases: 1.96 times the root of 2."""

UNKNOWN_NOISE = 0.10
"""Share of the wall, used while too few runs are stored. On the machines of docs/results.md single runs differ by 5 to
13 %."""


def run_variation(walls_ns: Sequence[int]) -> float | None:
    """Return the standard deviation of walls as a share of their mean; None for fewer than `ENOUGH_RUNS`."""
    return statistics.stdev(walls_ns) / statistics.fmean(walls_ns) if len(walls_ns) >= ENOUGH_RUNS else None


def noise_ns(earlier_walls_ns: Sequence[int], wall_ns: int) -> int:
    """Return the difference of two equal runs that 95 % of cases stay below, in nanoseconds; see `UNKNOWN_NOISE`."""
    variation = run_variation(earlier_walls_ns)
    return round((UNKNOWN_NOISE if variation is None else DIFFERENCE * variation) * wall_ns)


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a machine. Times in nanoseconds; shares of 1; None for a value that the kernel does not report."""

    timer_ns: int  # median distance between two readings of the clock
    sleep_over_p50_ns: int  # delay of the end of a sleep of 1 ms
    sleep_over_p99_ns: int
    loop_variation: float  # standard deviation over mean of a fixed piece of work of about 25 ms
    loop_slowest: float  # slowest over median of these
    steal_share: float | None  # CPU time that the hypervisor gave to other machines
    loopback_p50_ns: int  # round trip of 64 bytes over TCP on loopback
    loopback_p99_ns: int
    load_1m: float
    machine: str = ""  # machine that was measured

    earlier_walls_ns: tuple[int, ...] | None = None  # earlier runs of the experiment on this machine, oldest first

    @property
    def run_variation(self) -> float | None:
        """Standard deviation of the earlier walls, as a share of their mean; None for fewer than `ENOUGH_RUNS`."""
        return run_variation(self.earlier_walls_ns or ())

    @property
    def latest_ms(self) -> float:
        """Largest delay of a wait that ends by a message, in milliseconds (99th percentiles)."""
        return (self.sleep_over_p99_ns + self.loopback_p99_ns) / 1e6
