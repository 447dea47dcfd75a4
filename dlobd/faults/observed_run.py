"""Run on the embedded cluster, observed from outside, and triggers: the moments at which its faults begin.

A trigger is a new line of a log, or a sign such as a file that appears. One thread per run waits for all triggers. A
later fault waits in its action.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.paths import size_of
from dlobd.process_id import ProcessId

APPEARED = ""
"""First line that `LogTail` yields for a log that did not exist at the start."""

SPARK_SUBMIT, DRIVER = "spark-submit", "driver"

LINE_S, MARK_S = 0.001, 0.1
"""Pauses between two readings of the logs, and of files and recorded spans."""


@dataclass(slots=True)
class ObservedRun:
    """Run that is about to begin or in progress. Logs and containers of earlier runs are ignored.

    directory: directory of the injection log.
    bundles: directory in which the bundle appears; None if `began` announces the bundle.
    other: ID of an application to ignore, without the word `application`: _1795257292722_0001.
    over: set at the end of the run; every fault ends then.
    """

    cluster: EmbeddedCluster
    directory: Path
    cluster_mode: bool = False
    bundles: Path | None = None
    other: str = ""
    driver_log: Path | None = None
    over: threading.Event = field(default_factory=threading.Event)
    planned: list[str] = field(default_factory=list)
    _before: frozenset[Path] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset((*self._applications(), *self._driver_logs()))

    def began(self, bundle: Bundle) -> None:
        """Announce the run's bundle."""
        self.driver_log = bundle.path / files.DRIVER_STDERR

    def logs(self) -> dict[str, tuple[Path, ...]]:
        """Return name and files of each log that exists. A daemon's log has the daemon's name; `spark-submit` is the
        client's log; `container-N` is the N-th container's; `driver` is container-1 in cluster mode, else
        spark-submit. The files of a JVM of Spark are its stderr and its own log."""
        logs: dict[str, tuple[Path, ...]] = {}
        logs |= {name: (path,) for name, path in self.cluster.log_files().items() if path.exists()}
        for path in self.container_files("container_*/stderr"):
            logs[f"container-{int(path.parent.name.rpartition('_')[2])}"] = path, path.with_name(files.SPARK_LOG)
        if self.driver_log is None:
            self.driver_log = next((path for path in self._driver_logs() if path not in self._before), None)
        if self.driver_log and self.driver_log.exists():
            logs[SPARK_SUBMIT] = self.driver_log, self.driver_log.with_name(Path(files.DRIVER_LOG).name)
        driver = logs.get("container-1" if self.cluster_mode else SPARK_SUBMIT)
        return logs | ({DRIVER: driver} if driver else {})

    def concerns(self, line: str) -> bool:
        """Return True if a log line belongs to the run, not to the other application."""
        return not self.other or self.other not in line

    def container(self, number: int) -> str:
        """Return the ID of the N-th container; empty before it has a log directory."""
        return next((path.name for path in self.container_files(f"container_*_{number:06}")), "")

    def container_files(self, pattern: str) -> list[Path]:
        """Return the files in the log directories of the run's containers."""
        new = [path for path in self._applications() if path not in self._before]
        own = [path for path in new if not (self.other and path.name.endswith(self.other))]
        return sorted(file for path in own for file in path.glob(pattern))

    def _applications(self) -> Iterator[Path]:
        return self.cluster.work_dir.glob("nodemanager-*/userlogs/application_*")

    def _driver_logs(self) -> Iterator[Path]:
        return self.bundles.glob(f"*/*/{files.DRIVER_STDERR}") if self.bundles else iter(())


class LogTail:
    """Lines that are appended to logs after its creation; logs may appear later."""

    def __init__(self, logs: Callable[[], Mapping[str, Sequence[Path]]]) -> None:
        self._logs = logs
        before = logs()
        self._known = {*before}
        self._offsets = {(name, path): size_of(path) for name, paths in before.items() for path in paths}
        self._rest: dict[tuple[str, Path], str] = {}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield log name and text of each complete line since the last call."""
        for name, path in ((name, path) for name, paths in self._logs().items() for path in paths):
            if name not in self._known:
                self._known.add(name)
                yield name, APPEARED
            key = name, path  # a log has two names if it is the driver's
            data = _read_from(path, self._offsets.setdefault(key, 0))
            self._offsets[key] += len(data)
            *whole, self._rest[key] = (self._rest.get(key, "") + data.decode(errors="replace")).split("\n")
            for line in whole:
                yield name, line


def _read_from(path: Path, offset: int) -> bytes:
    try:
        if path.stat().st_size <= offset:
            return b""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""  # YARN removes a container's log at the end of its application


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
