"""Resource use of the timed sections of a process: CPU time, context switches, and system calls where they are known.

System calls need the kernel's tracepoint raw_syscalls:sys_enter, and are unknown without permission to use it.
"""

import ctypes
import os
import platform
import resource
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TRACEPOINT = "events/raw_syscalls/sys_enter/id"
_TRACING = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}  # numbers of the system call, from Linux's tables
_TYPE_TRACEPOINT, _INHERIT, _ATTR_BYTES = 2, 1 << 1, 112  # linux/perf_event.h; PERF_ATTR_SIZE_VER5


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a process in the timed sections of a point, while it handled `messages`. None is unknown."""

    messages: int
    cpu_ns: int
    switches: int
    syscalls: int | None


class Meter:
    """Sum over timed sections, between `start` and `stop`."""

    def __init__(self) -> None:
        self._syscalls = _SyscallCounter()
        self._sums = [0, 0, 0]
        self._before = [0, 0, 0]
        self.messages = 0

    def start(self) -> None:
        self._before = self._read()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the CPU time of the calling thread in the block, and system calls, also those of this function."""
        start_ns, before = time.thread_time_ns(), self._syscalls.read()
        yield
        self._before[2] += self._syscalls.read() - before + 3  # without the second reading, which is in the difference
        self._before[0] += time.thread_time_ns() - start_ns

    def stop(self, messages: int) -> None:
        """End a section with a number of messages."""
        after = self._read()
        self._sums = [total + late - early for total, late, early in zip(self._sums, after, self._before, strict=True)]
        self.messages += messages

    def taken(self) -> Use:
        """Return the sums, and begin anew."""
        cpu_ns, switches, syscalls = self._sums
        found = Use(self.messages, cpu_ns, switches, syscalls if self._syscalls.known else None)
        self._sums, self.messages = [0, 0, 0], 0
        return found

    def _read(self) -> list[int]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return [time.process_time_ns(), used.ru_nvcsw + used.ru_nivcsw, self._syscalls.read()]


class _SyscallCounter:
    def __init__(self) -> None:
        self._fd = -1
        number, path = _PERF_EVENT_OPEN.get(platform.machine()), None
        with suppress(OSError):
            path = next((root / _TRACEPOINT for root in _TRACING if (root / _TRACEPOINT).exists()), None)
        if number and path:
            with suppress(OSError, ValueError):
                # type, size, config; sample period, sample type, read format; flags
                attr = struct.pack("<IIQQQQQ", _TYPE_TRACEPOINT, _ATTR_BYTES, int(path.read_text()), 0, 0, 0, _INHERIT)
                buffer = ctypes.create_string_buffer(attr, _ATTR_BYTES)
                self._fd = ctypes.CDLL(None, use_errno=True).syscall(number, buffer, 0, -1, -1, 0)

    @property
    def known(self) -> bool:
        return self._fd >= 0

    def read(self) -> int:
        return struct.unpack("<Q", os.read(self._fd, 8))[0] if self.known else 0
