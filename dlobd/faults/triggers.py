"""Triggers: the moments at which faults begin. One thread per run waits for all triggers.

A trigger is a new line of a log, or a sign such as a file that appears. A later fault waits in its action.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from dlobd.faults.observed_run import LogTail, ObservedRun
from dlobd.process_id import ProcessId

LINE_S, MARK_S = 0.001, 0.1
"""Pauses between two readings of the logs, and of files and recorded spans."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Occurrence of a trigger: a log's name and the match; or a rank's role and process; or a file's name."""

    source: str
    match: re.Match[str] | None = None
    process: ProcessId | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """Trigger by a new line of a log. `log` is a pattern for the full name of the log."""

    log: str
    pattern: re.Pattern[str]


class Sign(Protocol):
    """Trigger by a polled sign of a run, such as a file."""

    def seen(self, run: ObservedRun) -> Moment | None:
        """Return the moment once the sign is present, None before."""


Trigger = LogLine | Sign


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault with its trigger. `inject` gets the run and the moment, and returns when the fault is over."""

    name: str
    trigger: Trigger
    inject: Callable[[ObservedRun, Moment], None]


@contextmanager
def armed(run: ObservedRun, faults: Sequence[Fault]) -> Iterator[None]:
    """Inject each fault once, at its trigger. The end of the context ends the run and every fault."""
    run.planned.extend(fault.name for fault in faults)
    watcher = threading.Thread(target=_watch, args=(run, LogTail(run.logs), list(faults)))
    watcher.start()
    try:
        yield
    finally:
        run.over.set()
        watcher.join()


def _watch(run: ObservedRun, tail: LogTail, waiting: list[Fault]) -> None:
    threads: list[threading.Thread] = []

    def begin(fault: Fault, moment: Moment) -> None:
        # one thread per fault, because two faults may overlap
        waiting.remove(fault)
        threads.append(threading.Thread(target=fault.inject, args=(run, moment), name=fault.name))
        threads[-1].start()

    next_look_s = 0.0
    while not run.over.wait(LINE_S):
        for log, line in tail.lines():
            for fault in [*waiting]:
                trigger = fault.trigger
                if not isinstance(trigger, LogLine) or not re.fullmatch(trigger.log, log) or not run.concerns(line):
                    continue
                if match := trigger.pattern.search(line):
                    begin(fault, Moment(log, match))
        if time.monotonic() >= next_look_s:
            next_look_s = time.monotonic() + MARK_S
            for fault in [*waiting]:
                if not isinstance(fault.trigger, LogLine) and (moment := fault.trigger.seen(run)):
                    begin(fault, moment)
    for thread in threads:
        thread.join()
