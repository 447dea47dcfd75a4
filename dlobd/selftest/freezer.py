"""Delays from outside of the job: processes are stopped for a known time, at a moment that a log names.

The interval of a delay is from when the kernel shows every thread as stopped until just before it is sent on.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import ProcessId
from dlobd.selftest import queue_holder, truth
from dlobd.selftest.log_tail import LogTail, WatchedRun
from dlobd.selftest.triggers import TRIGGERS
from dlobd.selftest.truth import Injection

LOOK_S = 0.001
SEARCH_S = 0.01
"""Between two looks for a process that is not there yet: each reads all of /proc."""
STOPPED_WITHIN_S = 2.0
"""How long stopping all threads of what is there may take."""
FREE_WITHIN_S = 30.0
"""How long other delays of the same process may take."""

Fired = Callable[[str, re.Match[str]], None]
"""Makes a delay; gets the log's name and the match."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A delay that is to be made once a line in a log fits."""

    log: str
    pattern: re.Pattern[str]
    fired: Fired


class Stops:
    """The processes that delays have stopped. A second delay of one of them begins when the first is over: to send it
    on would end both."""

    def __init__(self) -> None:
        self._stopped: set[ProcessId] = set()
        self._changed = threading.Condition()

    def begin(self, processes: Sequence[ProcessId]) -> bool:
        """Waits until none of them is stopped; whether that came to be in time."""
        with self._changed:
            free = self._changed.wait_for(lambda: self._stopped.isdisjoint(processes), FREE_WITHIN_S)
            if free:
                self._stopped.update(processes)
            return free

    def end(self, processes: Sequence[ProcessId]) -> None:
        """Says that they go on."""
        with self._changed:
            self._stopped.difference_update(processes)
            self._changed.notify_all()


@contextmanager
def watching(
    cluster: EmbeddedCluster, cluster_mode: bool, plan: Mapping[str, Sequence[float]], directory: Path
) -> Iterator[WatchedRun]:
    """While the context lasts, makes the delays of `plan` (point to seconds) that come from outside, each once. Yields
    the run, which has to be told its bundle.

    Raises:
        ClusterError: YARN does not take the application that is to hold the queue.
    """
    stop, stops = threading.Event(), Stops()
    waiting: list[_Waiting] = []
    with ExitStack() as stack:
        run = WatchedRun(cluster, cluster_mode)
        if seconds := plan.get(queue_holder.POINT):
            holder = stack.enter_context(queue_holder.held(cluster))
            run.other = holder.application_id.removeprefix("application")
            waiting.append(
                _Waiting("resourcemanager", queue_holder.ACCEPTED, _released(holder.release, seconds[0], directory))
            )
        for point, trigger in TRIGGERS.items():
            if seconds := plan.get(point):
                fired = _frozen(run, point, seconds[0], directory, stop, stops)
                waiting.append(_Waiting(trigger.log, trigger.pattern, fired))
        watcher = threading.Thread(target=_watch, args=(run, LogTail(run.logs), waiting, stop))
        watcher.start()
        try:
            yield run
        finally:
            stop.set()
            watcher.join()


def _watch(run: WatchedRun, tail: LogTail, waiting: list[_Waiting], stop: threading.Event) -> None:
    """Makes each delay at the first line that fits, in a thread of its own: two may overlap."""
    threads = []
    while not stop.wait(LOOK_S):
        for log, line in tail.lines():
            for one in [one for one in waiting if re.fullmatch(one.log, log) and run.tells_of_it(line)]:
                if match := one.pattern.search(line):
                    waiting.remove(one)
                    threads.append(threading.Thread(target=one.fired, args=(log, match)))
                    threads[-1].start()
    for thread in threads:
        thread.join()


def _released(release: Callable[[], None], seconds: float, directory: Path) -> Fired:
    def fired(log: str, match: re.Match[str]) -> None:
        truth.inject(directory, queue_holder.POINT, seconds)
        release()

    return fired


def _frozen(run: WatchedRun, point: str, seconds: float, directory: Path, stop: threading.Event, stops: Stops) -> Fired:
    trigger = TRIGGERS[point]

    def fired(log: str, match: re.Match[str]) -> None:
        deadline = time.monotonic() + trigger.within_s
        while not trigger.targets(run, log, match):
            if time.monotonic() > deadline or stop.wait(SEARCH_S):
                return  # what was not injected is missed by the score
        freeze(point, lambda: trigger.targets(run, log, match), seconds, directory, stops)

    return fired


def freeze(
    point: str, targets: Callable[[], Sequence[ProcessId]], seconds: float, directory: Path, stops: Stops
) -> None:
    """Stops processes for so long, and writes it down; nothing is written where there was nothing to stop.

    Args:
        targets: asked again until it names no more than are stopped: a process may just be starting another one.
    """
    stopped: list[ProcessId] = []
    deadline = time.monotonic() + STOPPED_WITHIN_S
    try:
        while time.monotonic() < deadline:
            more = [process for process in targets() if process not in stopped]
            if more:
                if not stops.begin(more):
                    return
                stopped += more
                deadline = time.monotonic() + STOPPED_WITHIN_S
            for process in more:
                process.kill(signal.SIGSTOP)
            if stopped and not more and all(map(_is_stopped, stopped)):
                break
            time.sleep(LOOK_S)
        else:
            return
        start_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns()
    finally:
        for process in stopped:
            process.kill(signal.SIGCONT)
        stops.end(stopped)
    truth.write(directory, Injection(point, round(seconds * 1e9), start_ns, end_ns))


def _is_stopped(process: ProcessId) -> bool:
    """Whether the kernel has stopped every thread, or the process is gone."""
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        states = [(thread / "stat").read_bytes().rpartition(b")")[2].split()[0] for thread in threads]
    except OSError:
        return not process.alive
    return all(state in (b"T", b"t", b"Z", b"X") for state in states)
