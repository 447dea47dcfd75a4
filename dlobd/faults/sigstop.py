"""Stops processes by SIGSTOP for a known time. Other processes see a hung daemon, a paused machine or a stalled disk.

The logged interval begins when the kernel shows every thread as stopped, and ends just before SIGCONT.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dlobd.faults import injection_log
from dlobd.faults.injection_log import Injection
from dlobd.process_id import ProcessId

LOOK_S = 0.001
SEARCH_S = 0.01
"""Pause between two searches for a process that does not exist yet: each search reads all of /proc."""
STOPPED_WITHIN_S = 2.0
"""Timeout for stopping every thread of the processes that exist."""
FREE_WITHIN_S = 30.0
"""Timeout for the end of other stops of the same processes."""

_stopped: set[ProcessId] = set()
"""Currently stopped processes. A second stop of a process waits for the first, because SIGCONT ends both."""
_changed = threading.Condition()


@contextmanager
def stopped(targets: Callable[[], Sequence[ProcessId]]) -> Iterator[bool]:
    """Stop processes while the context lasts. Yield False if they were not stopped in time. `targets` is called
    until all its processes are stopped, because a process may be starting another process."""
    processes: list[ProcessId] = []
    try:
        yield _stop_all(targets, processes)
    finally:
        for process in processes:
            process.kill(signal.SIGCONT)
        with _changed:
            _stopped.difference_update(processes)
            _changed.notify_all()


def _stop_all(targets: Callable[[], Sequence[ProcessId]], stopped: list[ProcessId]) -> bool:
    deadline_s = time.monotonic() + STOPPED_WITHIN_S
    while time.monotonic() < deadline_s:
        more = [process for process in targets() if process not in stopped]
        if more:
            with _changed:
                if not _changed.wait_for(partial(_stopped.isdisjoint, more), FREE_WITHIN_S):
                    return False
                _stopped.update(more)
            stopped += more
            deadline_s = time.monotonic() + STOPPED_WITHIN_S
        for process in more:
            process.kill(signal.SIGSTOP)
        if stopped and not more and all(map(_is_stopped, stopped)):
            return True
        time.sleep(LOOK_S)
    return False


def stop(
    point: str,
    targets: Callable[[], Sequence[ProcessId]],
    seconds: float,
    directory: Path,
    over: threading.Event,
    within_s: float = STOPPED_WITHIN_S,
) -> None:
    """Stop processes for some time, or until `over`, and log the interval, unless none appears within `within_s`."""
    search_until_s = time.monotonic() + within_s
    while not targets():
        if time.monotonic() > search_until_s or over.wait(SEARCH_S):
            return
    with stopped(targets) as done:
        if not done:
            return
        start_ns = time.monotonic_ns()
        over.wait(seconds)
        end_ns = time.monotonic_ns()
    injection_log.write(directory, Injection(point, round(seconds * 1e9), start_ns, end_ns))


def _is_stopped(process: ProcessId) -> bool:
    """Return True if the kernel has stopped every thread, or the process is gone."""
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        states = [(thread / "stat").read_bytes().rpartition(b")")[2].split()[0] for thread in threads]
    except OSError:
        return not process.alive
    return all(state in (b"T", b"t", b"Z", b"X") for state in states)
