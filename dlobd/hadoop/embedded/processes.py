"""Processes of dlobd and of YARN's containers, found by a JVM argument or an environment that only they have."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

from dlobd.process_id import ProcessId, identify

MARK = "-Ddlobd.work_dir="
"""The mark: a JVM argument of every daemon, which the cluster's work directory completes."""


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded at import, because loading between fork and exec is unsafe


def die_with_parent(number: signal.Signals) -> None:
    """Let the kernel send a signal to this process when its parent ends in any way."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def daemons_of(work_dir: Path) -> list[ProcessId]:
    """Return the running JVMs with this work directory's mark."""
    wanted = os.fsencode(f"{MARK}{work_dir}")
    return _having(lambda entry: entry == wanted, "cmdline")


def containers_of(work_dir: Path, application_id: str = "") -> list[ProcessId]:
    """Return the running processes of YARN containers with local directories in this work directory.

    With `application_id`, return those of this application only.
    """
    prefix, part = os.fsencode(f"LOCAL_DIRS={work_dir}/"), os.fsencode(f"/{application_id}" if application_id else "")
    return _having(lambda entry: entry.startswith(prefix) and entry.endswith(part), "environ")


def mentioning(word: str) -> list[ProcessId]:
    """Return the running processes with `word`, such as a container ID, in environment or command line."""
    wanted = os.fsencode(word)
    return _having(lambda entry: wanted in entry, "environ", "cmdline")


def wait_gone(processes: Collection[ProcessId], deadline: float) -> list[ProcessId]:
    """Wait until all `processes` have ended or `deadline` (time.monotonic) has passed; return the remaining ones."""
    while True:
        left = [process for process in processes if process.alive]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.05)


def end(processes: Collection[ProcessId], grace_s: float) -> None:
    """Send SIGTERM, and SIGKILL after `grace_s` seconds."""
    for process in processes:
        process.kill(signal.SIGTERM)
    left = wait_gone(processes, time.monotonic() + grace_s)
    for process in left:
        process.kill(signal.SIGKILL)
    wait_gone(left, time.monotonic() + 5)


def rss_bytes(process: ProcessId) -> int:
    """Return the resident memory; 0 if the process has ended."""
    fields = _read(process.pid, "statm").split() if process.alive else []
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def _having(wanted: Callable[[bytes], bool], *names: str) -> list[ProcessId]:
    """Return the other running processes with a wanted entry in one of the files `names` of /proc/<pid>."""
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
    processes = (process for pid in pids if pid != os.getpid() and (process := identify(pid)))
    return [one for one in processes if any(any(map(wanted, _read(one.pid, name).split(b"\0"))) for name in names)]


def _read(pid: int, name: str) -> bytes:
    """Read a file of /proc/<pid>; empty if the process has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
