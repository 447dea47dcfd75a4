"""Linux's counters of a process and its threads in /proc: time on a core, waiting for a core, disk reads.

The kernel drops a thread's waiting time when the thread ends, so this module keeps the last waiting times. A
process's CPU clock includes the core time of ended threads.
"""

import os
import re
import time
from dataclasses import dataclass
from functools import cache

from dlobd.tracing.clock import tick_ns

LANE_OF_JVM = re.compile(r"Executor task l|Driver$|Reporter$|Thread-\d+$")
"""Names, truncated by the kernel, of the threads of Spark's JVMs that alternate with Java's main thread."""


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Times since the start of the process, for the threads of its lane and for all threads."""

    lane_on_core_ns: int
    lane_waiting_ns: int
    threads_on_core_ns: int
    threads_waiting_ns: int


class Threads:
    """Threads of one process. `java`: True for a JVM, whose first thread only starts Java's main thread."""

    def __init__(self, pid: int, java: bool = False) -> None:
        self._directory = f"/proc/{pid}/task"
        self._pid = pid
        self._java = java
        self._lane: set[int] = set()
        self._seen: dict[int, tuple[int, int]] = {}
        self._ended = [0, 0, 0, 0]

    def read(self) -> ThreadTimes | None:
        """Read the times; None if the process has ended, or the kernel does not count them."""
        try:
            readings = {tid: self._thread(tid) for tid in map(int, os.listdir(self._directory))}
        except OSError:
            return None
        current = {tid: times for tid, times in readings.items() if times is not None}
        if not current:
            return None
        if self._java:
            self._lane_of_jvm(current.keys() - self._seen.keys(), min(current.keys() - {self._pid}, default=self._pid))
        else:
            self._lane.add(self._pid)
        for tid, before in self._seen.items():
            if tid not in current or current[tid][0] < before[0]:  # ended; a new thread may have its ID
                self._ended = _added(self._ended, before, tid in self._lane)
        self._seen = current
        total = self._ended
        for tid, times in current.items():
            total = _added(total, times, tid in self._lane)
        return ThreadTimes(*total)

    def _lane_of_jvm(self, new: set[int], main: int) -> None:
        if not self._seen:
            self._lane |= {self._pid, main}
        for tid in new:
            try:
                name = _content(f"{self._directory}/{tid}/comm").decode(errors="replace").strip()
            except OSError:
                continue
            if LANE_OF_JVM.match(name):
                self._lane.add(tid)

    def _thread(self, tid: int) -> tuple[int, int] | None:
        try:
            on_core_ns, waiting_ns, _ = _content(f"{self._directory}/{tid}/schedstat").split()
        except (OSError, ValueError):
            return None  # the thread has ended
        return int(on_core_ns), int(waiting_ns)


def _added(total: list[int], times: tuple[int, int], lane: bool) -> list[int]:
    return [sum_ns + ns for sum_ns, ns in zip(total, (*(times if lane else (0, 0)), *times), strict=True)]


def cpu_ns(pid: int) -> int | None:
    """Return the core time of a process's threads, ended threads included; None if the process has ended."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # the kernel's ID of that process's CPU clock
    except OSError:
        return None


def read_bytes(pid: int) -> int | None:
    """Return the bytes that a process has read from disks; None if it has ended or permission is denied."""
    try:
        return int(_content(f"/proc/{pid}/io").partition(b"\nread_bytes:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return None


def faults(pid: int) -> tuple[int, int | None] | None:
    """Return major page faults and nanoseconds blocked by disks, if counted; None for an ended process."""
    try:
        # the second field, the command, may contain spaces and brackets
        fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return int(fields[9]), int(fields[39]) * tick_ns() if counts_block_io() else None
    except (OSError, IndexError, ValueError):
        return None


@cache
def counts_block_io() -> bool:
    """Return True if this kernel counts the time of threads blocked by disks."""
    try:
        return _content("/proc/sys/kernel/task_delayacct").strip() == b"1"
    except OSError:
        return False


def pressure() -> tuple[int, int] | None:
    """Return the nanoseconds since boot in which some task waited for a core, and for a disk; None without counters."""
    try:
        contents = (_content(f"/proc/pressure/{resource}") for resource in ("cpu", "io"))
        cpu, io = (int(content.partition(b"total=")[2].split()[0]) * 1000 for content in contents)
    except (OSError, ValueError):
        return None
    return cpu, io


def _content(path: str) -> bytes:
    # one read returns a whole file of /proc
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)
