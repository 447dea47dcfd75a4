"""Runs a submit command and observes its window: from just before exec to the exit, by this process's clock.

The job ends with this process: dlobd ends it on Ctrl-C, and the kernel's parent-death signal on kill -9.
"""

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dlobd.bundle.files import DRIVER_LOG
from dlobd.evidence.spark import ANNOUNCED
from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.run.schedulers.base import Command
from dlobd.schema import ClockAnchor
from dlobd.tracing import clock

_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b|\bapp-\d{14}-\d{4}\b")
"""Pattern of the application IDs of YARN and of Spark's Master."""
GRACE_S = 5.0
"""Time between SIGTERM and SIGKILL."""
_SUBMITTED = "Submitted application application_"
_STARTED = ("(state: RUNNING)", "has started running")
"""Lines of Spark's YARN client after an ApplicationMaster has registered."""


@dataclass(frozen=True, slots=True)
class Window:
    """Observations of the client. Times are on the monotonic clock; `anchors` relate it to the wall clock."""

    exec_ns: int
    started_ns: int
    exit_ns: int
    exit_code: int  # negative: number of the signal that ended the process
    pid: int
    application_id: str | None
    ended_by: str  # "timeout", "accept timeout" or "interrupt" if dlobd ended the job; else empty
    anchors: tuple[ClockAnchor, ...]
    diagnostics: str = ""  # the scheduler's diagnostics when dlobd ended the application
    applications: tuple[str, ...] = ()  # all IDs, in their order: a script may create several SparkContexts


def submit(
    command: Command,
    logs: Path,
    timeout_s: float,
    accept_timeout_s: float,
    follow: Callable[[str], None],
    on_abort: Callable[[str], str],
    output: Callable[[str], None] = lambda line: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Window:
    """Run `command` until it exits, or at most `timeout_s` seconds. YARN may leave the application without an
    ApplicationMaster for `accept_timeout_s` seconds. KeyboardInterrupt is recorded, not raised.

    Args:
        logs: directory of driver.stdout, whose lines `output` receives, and of driver.stderr.
        follow: receives each new line of the log of spark-submit's JVM, or without a JVM of driver.stderr.
        on_abort: called with the last known application when dlobd ends the job; returns the scheduler's diagnostics.
        on_interrupt: called on KeyboardInterrupt before the job is ended, which may take longer than dlobd has.
    """
    logs.mkdir(parents=True, exist_ok=True)
    stdout_path, stderr_path = logs / "driver.stdout", logs / "driver.stderr"
    # a JVM's own log has dlobd's level and pattern, stderr the user's
    follower = _Follower((logs / Path(DRIVER_LOG).name, stderr_path), follow)
    printed = _Tail(stdout_path)
    first = clock.anchor()
    environment = {**os.environ, **command.environment}
    with open(stdout_path, "wb") as stdout, open(stderr_path, "wb") as stderr:
        exec_ns = clock.monotonic_ns()
        process = subprocess.Popen(
            command.argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: before_exec(),
        )
        started_ns = clock.monotonic_ns()
    ended_by, diagnostics = "", ""
    try:
        with _exit_event(process) as exited:
            deadline = time.monotonic() + timeout_s
            while not exited(0.2):
                follower.follow()
                for line in printed.lines():
                    output(line)
                if time.monotonic() > deadline:
                    ended_by = "timeout"
                    break
                if follower.waits_s() > accept_timeout_s:
                    ended_by = "accept timeout"
                    break
    except KeyboardInterrupt:
        # not raised: the caller collects the evidence that the job has left
        ended_by = "interrupt"
        on_interrupt()
    except BaseException:
        _end_group(process)
        raise
    exit_ns = clock.monotonic_ns()
    if ended_by:
        follower.follow()
        if applications := follower.applications:
            diagnostics = on_abort(applications[-1])
        _end_group(process)
        exit_ns = clock.monotonic_ns()
    else:
        # the driver's Python outlives a killed JVM
        _end_group(process)
    code = process.wait(GRACE_S)
    follower.follow()
    for line in printed.lines(partial=True):
        output(line)
    return Window(
        exec_ns=exec_ns,
        started_ns=started_ns,
        exit_ns=exit_ns,
        exit_code=code,
        pid=process.pid,
        application_id=next(iter(follower.applications), None),
        ended_by=ended_by,
        anchors=(first, clock.anchor()),
        diagnostics=diagnostics,
        applications=follower.applications,
    )


def before_exec() -> None:
    """Arm the kernel's parent-death signal in the child before it executes the command."""
    die_with_parent(signal.SIGKILL)


@contextmanager
def _exit_event(process: subprocess.Popen[bytes]) -> Iterator[Callable[[float], bool]]:
    """Yield `exited(timeout_s)`, which returns as soon as the process ends: no poll interval distorts the window."""
    fd = os.pidfd_open(process.pid)
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    try:
        yield lambda timeout_s: bool(poller.poll(timeout_s * 1000))
    finally:
        os.close(fd)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number, timeout_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            continue


class _Tail:
    """Reader of the new lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def lines(self, partial: bool = False) -> list[str]:
        """Return the whole new lines; with `partial`, also an unfinished last line."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data if partial else data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


class _Follower:
    """Reader of the first of `paths` that exists."""

    def __init__(self, paths: Sequence[Path], receive: Callable[[str], None]) -> None:
        self._tails = [_Tail(path) for path in paths]
        self._receive = receive
        self._submitted_s: float | None = None
        self._announced: list[str] = []
        self._named: str | None = None

    @property
    def applications(self) -> tuple[str, ...]:
        """The applications that the log announced, else the first that it names."""
        return tuple(dict.fromkeys(self._announced)) or ((self._named,) if self._named else ())

    def waits_s(self) -> float:
        """Return the time since the submission of an application that YARN has not started; 0 without one."""
        return time.monotonic() - self._submitted_s if self._submitted_s else 0.0

    def follow(self) -> None:
        tail = next((tail for tail in self._tails if tail.path.exists()), None)
        for line in tail.lines() if tail else ():
            if match := ANNOUNCED.search(line):
                self._announced.append(match[1])
            elif self._named is None and (match := _APPLICATION.search(line)):
                self._named = match[0]
            if _SUBMITTED in line:
                self._submitted_s = time.monotonic()
            elif any(mark in line for mark in _STARTED):
                self._submitted_s = None
            self._receive(line)
