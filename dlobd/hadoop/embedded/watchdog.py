"""Ends a cluster's daemons when the command that owns them has ended without doing so, for example by kill -9.

Runs as a process of its own: `python -m dlobd.hadoop.embedded.watchdog WORK_DIR OWNER_PID OWNER_START_TICKS`. It sleeps
in the kernel on the owner's pidfd: it costs no time, and neither threads nor inherited pipes of the owner matter.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from dlobd.hadoop.embedded.processes import ProcessId, containers_of, daemons_of, wait_gone
from dlobd.paths import PACKAGE

END_DEADLINE_S = 10.0


def start_watchdog(work_dir: Path, owner: ProcessId) -> subprocess.Popen[bytes]:
    """Starts the watchdog; it is in a session of its own, so that Ctrl-C does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(work_dir), str(owner.pid), str(owner.start_ticks)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        cwd=work_dir,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_end(owner: ProcessId) -> None:
    """Returns when `owner` is no more."""
    try:
        fd = os.pidfd_open(owner.pid)
    except (OSError, AttributeError):  # gone already, or a kernel before 5.3
        while owner.alive:
            time.sleep(1)
        return
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    # looked at after the pidfd was opened: so it is the owner's, not that of a later process with its pid
    while owner.alive:
        if poller.poll(60_000):
            break
    os.close(fd)


def end_everything(work_dir: Path) -> None:
    """Kills the daemons and containers of `work_dir`, the quick way: no process is left that needs an orderly end."""
    deadline = time.monotonic() + END_DEADLINE_S
    # looked at again until nothing is found: a container may have been started while the first list was made
    while processes := [*daemons_of(work_dir), *containers_of(work_dir)]:
        for process in processes:
            process.kill(signal.SIGKILL)
        wait_gone(processes, time.monotonic() + 1)
        if time.monotonic() >= deadline:  # stuck in the kernel: nothing more can be done from here
            return


def main() -> None:
    """The process's life: wait, then end everything."""
    work_dir, pid, ticks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wait_for_end(ProcessId(pid, ticks))
    end_everything(work_dir)


if __name__ == "__main__":
    main()
