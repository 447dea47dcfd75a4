"""Clocks: the monotonic clock of all measurements, and its relation to the wall clock of third-party logs.

A clock domain is (host, boot, time namespace). Within a domain, Python's `monotonic_ns` and the JVM's
`System.nanoTime` read the same CLOCK_MONOTONIC and are comparable; log4j writes `System.nanoTime` as `%nano`.
"""

import os
import socket
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from dlobd.schema import ClockAnchor

monotonic_ns = time.monotonic_ns
"""Reads CLOCK_MONOTONIC, in nanoseconds."""

STEP_NS = 10_000_000
"""Smallest change of the wall clock between two anchors that counts as a step and not as slewing."""


@contextmanager
def timed(into: MutableMapping[str, int | None], name: str) -> Iterator[None]:
    """Store the duration of its block in `into[name]`, in nanoseconds, also if the block fails."""
    start_ns = monotonic_ns()
    try:
        yield
    finally:
        into[name] = monotonic_ns() - start_ns


def host_name() -> str:
    """Return YARN's NM_HOST if it is set, no address, not localhost, and not the kernel's host name; else that name."""
    kernel, yarn = socket.gethostname(), os.environ.get("NM_HOST", "")
    is_address = yarn.replace(".", "").isdecimal()
    same = yarn.partition(".")[0] in ("localhost", kernel.partition(".")[0])
    return kernel if not yarn or is_address or same else yarn


def domain() -> str:
    """Return this process's clock domain: monotonic times of two processes with equal domains are comparable."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        boot, namespace = "unknown", "unknown"
    return f"{host_name()}/{boot}/{namespace}"


def anchor(tries: int = 5) -> ClockAnchor:
    """Read both clocks together in the fastest of `tries` readings; the error is half of the reading's duration."""

    def read() -> tuple[int, int, int]:
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return after - before, (before + after) // 2, wall

    lasted_ns, at_ns, wall_ns = min(read() for _ in range(tries))
    return ClockAnchor(domain(), at_ns, wall_ns, lasted_ns // 2 + 1)


def process_start_ns(pid: int | str = "self") -> int | None:
    """Return the start of a process on the monotonic clock, to one kernel tick (`tick_ns`); None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            # the second field, the command, may hold spaces and brackets: split after its last bracket
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
    # the kernel counts from boot; CLOCK_BOOTTIME is CLOCK_MONOTONIC plus the time in suspend
    suspended = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return ticks * tick_ns() - suspended


def tick_ns() -> int:
    """Return the resolution of `process_start_ns`: 10 ms on most machines."""
    return 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class WallToMonotonic:
    """Conversion of wall-clock timestamps to the monotonic clock, by the nearest anchor of one clock domain."""

    def __init__(self, anchors: Sequence[ClockAnchor]) -> None:
        if not anchors:
            raise ValueError("no clock anchor: wall-clock timestamps cannot be converted")
        self._anchors = sorted(anchors, key=lambda a: a.wall_ns)

    def ns(self, wall_ns: int) -> int:
        """Convert `wall_ns` (nanoseconds since the epoch)."""
        nearest = min(self._anchors, key=lambda a: abs(a.wall_ns - wall_ns))
        return nearest.monotonic_ns + wall_ns - nearest.wall_ns

    def ms(self, wall_ms: int) -> int:
        """Convert `wall_ms` (milliseconds since the epoch); the event lies in [t, t + 1 ms)."""
        return self.ns(wall_ms * 1_000_000)

    @property
    def step_ns(self) -> int:
        """Range of the wall clock's offset from the monotonic clock over all anchors; 0 if no clock was adjusted."""
        offsets = [a.wall_ns - a.monotonic_ns for a in self._anchors]
        return max(offsets) - min(offsets)


def stepped_ns(anchors: Sequence[ClockAnchor]) -> int:
    """Return the largest step of the wall clock between consecutive anchors of a domain; slewing is no step."""
    largest = 0
    for name in {anchor.domain for anchor in anchors}:
        ordered = sorted((a for a in anchors if a.domain == name), key=lambda a: a.monotonic_ns)
        for before, after in pairwise(ordered):
            lasted_ns = after.monotonic_ns - before.monotonic_ns
            step_ns = after.wall_ns - before.wall_ns - lasted_ns
            expected_ns = STEP_NS + lasted_ns // 2000 + before.error_ns + after.error_ns
            if abs(step_ns) > max(expected_ns, abs(largest)):
                largest = step_ns
    return largest
