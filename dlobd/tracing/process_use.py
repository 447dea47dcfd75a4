"""What Linux's kernel has counted of a process and of its threads, read from /proc: time on a core, time of waiting
for one, and what was read from disks.

A thread that is neither on a core nor waiting for one is blocked: it sleeps, or waits for a lock, a disk, a message.
The kernel keeps what a thread waited for no longer than the thread; of ended threads a process's CPU clock has the time
on a core, and what was seen of them before is kept here.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from functools import cache

from dlobd.tracing.clock import tick_ns

LANE_OF_JVM = re.compile(r"Executor task l|Driver$|Reporter$|Thread-\d+$")
"""Names, as the kernel cuts them, of the threads of Spark's JVMs that work by turns with Java's main thread: a task's,
that of a driver inside the ApplicationMaster, the one that asks YARN for containers, and those that answer the driver's
Python."""


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Since the process was started. `lane` are the threads of which one at a time carries the process's lane,
    `threads` all that were seen; without those that began and ended unseen."""

    lane_on_core_ns: int
    lane_waiting_ns: int
    threads_on_core_ns: int
    threads_waiting_ns: int


class Threads:
    """The threads of one process, which is read again and again.

    Args:
        java: whether it is a JVM. Its launcher's first thread starts Java's main thread and waits for it; any other
            program's first thread is its main one.
    """

    def __init__(self, pid: int, java: bool = False) -> None:
        self._directory = f"/proc/{pid}/task"
        self._pid = pid
        self._java = java
        self._lane: set[int] = set()
        self._seen: dict[int, tuple[int, int]] = {}
        self._ended = [0, 0, 0, 0]

    def read(self) -> ThreadTimes | None:
        """None if the process is gone, or the kernel does not count."""
        try:
            found = {tid: self._thread(tid) for tid in map(int, os.listdir(self._directory))}
        except OSError:
            return None
        there = {tid: times for tid, times in found.items() if times is not None}
        if not there:
            return None
        if self._java:
            self._lane_of_jvm(there.keys() - self._seen.keys(), min(there.keys() - {self._pid}, default=self._pid))
        else:
            self._lane.add(self._pid)
        for tid, before in self._seen.items():
            if tid not in there or there[tid][0] < before[0]:  # ended; its number may be another thread's now
                self._ended = _added(self._ended, before, tid in self._lane)
        self._seen = there
        total = self._ended
        for tid, times in there.items():
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
            return None  # it has ended since
        return int(on_core_ns), int(waiting_ns)


def _added(total: list[int], times: tuple[int, int], lane: bool) -> list[int]:
    return [before + one for before, one in zip(total, (*(times if lane else (0, 0)), *times), strict=True)]


def cpu_ns(pid: int) -> int | None:
    """Time that a process's threads were on a core, ended ones too; None if it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # the kernel's number for that process's CPU clock
    except OSError:
        return None


def read_bytes(pid: int) -> int | None:
    """Bytes that a process had disks read; None if it is gone, or the kernel does not tell this user."""
    try:
        return int(_content(f"/proc/{pid}/io").partition(b"\nread_bytes:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return None


def faults(pid: int) -> tuple[int, int | None] | None:
    """Pages that had to be read from a disk before a process could go on, and how long it was blocked by disks in all:
    nanoseconds, in ticks, None where the kernel does not count them (`delayacct`). None if it is gone."""
    try:
        # the second field, the command, may hold spaces and brackets
        fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return int(fields[9]), int(fields[39]) * tick_ns() if counts_block_io() else None
    except (OSError, IndexError, ValueError):
        return None


@cache
def counts_block_io() -> bool:
    """Whether this kernel counts how long threads are blocked by disks."""
    try:
        return _content("/proc/sys/kernel/task_delayacct").strip() == b"1"
    except OSError:
        return False


def pressure() -> tuple[int, int] | None:
    """Since the machine was started, the nanoseconds in which some task waited for a core, and those in which some was
    blocked by a disk; None where the kernel does not count them."""
    try:
        cpu, io = (_stalled_ns(_content(f"/proc/pressure/{what}")) for what in ("cpu", "io"))
    except (OSError, ValueError):
        return None
    return cpu, io


def _stalled_ns(content: bytes) -> int:
    return int(content.partition(b"total=")[2].split()[0]) * 1000


def _content(path: str) -> bytes:
    """Of a file of /proc, in one read, which is all of it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)
