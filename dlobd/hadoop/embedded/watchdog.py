"""Ends a cluster's daemons if the command that owns them has ended without stopping them, for example by kill -9.

It runs as a separate process: `python -m dlobd.hadoop.embedded.watchdog WORK_DIR OWNER_PID OWNER_START_TICKS`. It waits
for the owner's pidfd, which costs no CPU time and does not depend on threads or inherited pipes of the owner.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from dlobd.hadoop.embedded.processes import containers_of, daemons_of, wait_gone
from dlobd.paths import PACKAGE
from dlobd.process_id import ProcessId

END_DEADLINE_S = 10.0


def start_watchdog(work_dir: Path, owner: ProcessId) -> subprocess.Popen[bytes]:
    """Start the watchdog in a new session, so that Ctrl-C does not reach it."""
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
    """Wait until `owner` has ended."""
    try:
        fd = os.pidfd_open(owner.pid)
    except OSError:  # the owner has ended already, or the kernel is older than 5.3
        while owner.alive:
            time.sleep(1)
        return
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    # checked after the pidfd was opened, which might belong to a later process with the same pid
    while owner.alive:
        if poller.poll(60_000):
            break
    os.close(fd)


def end_everything(work_dir: Path) -> None:
    """Kill the daemons and containers of `work_dir`. No process needs a clean shutdown."""
    deadline = time.monotonic() + END_DEADLINE_S
    # repeated until the list is empty: a container may start while the list is made
    while processes := [*daemons_of(work_dir), *containers_of(work_dir)]:
        for process in processes:
            process.kill(signal.SIGKILL)
        wait_gone(processes, time.monotonic() + 1)
        if time.monotonic() >= deadline:  # the remaining processes hang in the kernel: dlobd cannot end them
            return


def main() -> None:
    """Wait for the owner's end, then kill daemons and containers."""
    work_dir, pid, ticks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wait_for_end(ProcessId(pid, ticks))
    end_everything(work_dir)


if __name__ == "__main__":
    main()
