"""Identity of processes by pid and start time: a pid alone may belong to another process by then."""

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identity of a process until reboot: `start_ticks` is its start time in ticks since boot."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """True if exactly this process is running; a zombie counts as ended."""
        return _stat(self.pid) == self.start_ticks

    def ended(self, domain: str, here: str) -> bool:
        """Return True if the process, of clock domain `domain`, has ended; False if it may run on another machine.
        `here` is this process's own domain; see `dlobd.tracing.clock.domain`."""
        recorded, own = domain.split("/"), here.split("/")
        if recorded[0] != own[0] or "unknown" in recorded[1:] + own[1:]:
            return False
        if recorded[1] != own[1]:
            return True  # the machine has rebooted since then
        return recorded == own and not self.alive

    def kill(self, number: signal.Signals) -> None:
        """Send a signal if the pid still belongs to this process."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass


def identify(pid: int) -> ProcessId | None:
    """Return the process with this pid; None if there is no such process."""
    ticks = _stat(pid)
    return None if ticks is None else ProcessId(pid, ticks)


def _stat(pid: int) -> int | None:
    """Return the start time in ticks; None if there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the second field, the command, may contain spaces and brackets: split after the last bracket
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])
