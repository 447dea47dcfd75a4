"""Reduces a failure to one line: the three stack traces of a Spark job, or the exit status of a trainer process.

A process that the kernel killed for lack of memory looks like any `kill -9`. If YARN itself runs in a container, it
cannot report the memory limit of this container. So dlobd reads the kernel's counter of such kills.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd.hadoop.failures import failures
from dlobd.spans import JOB_FAILED_LINE

if TYPE_CHECKING:
    from dlobd.job.rank_status import JobStatus

ROOT = Path("/")

_FILES = {"memory": ("memory.oom_control", "memory.limit_in_bytes"), "": ("memory.events", "memory.max")}
"""Files with the out-of-memory kills and with the memory limit, in control groups of version 1 and 2. Source:
Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of Linux."""

_MARKS = ("died: ", "Reason: ", "ExecutorLostFailure", "Error: ", "Exception: ")
_NOISE = ("at ", "py4j", "org.apache.spark.SparkException")


def failure_line(error: Exception, status: JobStatus) -> str:
    """Return the cause that a rank reported, else the cause that a node reported, else the line of `error` that names
    the cause."""
    try:
        if failure := status.final_failure():
            return failure
    except failures():
        pass  # HDFS itself has failed, which `error` reports
    lines = [line.strip() for line in str(error).splitlines()]
    if own := next((line for line in lines if line.startswith(JOB_FAILED_LINE)), None):
        return own.removeprefix(JOB_FAILED_LINE)  # printed on a node that lacks the interpreter of a packed environment
    for mark in _MARKS:
        for line in reversed(lines):
            if mark in line and not line.startswith(_NOISE):
                return line
    return next((line for line in lines if line), type(error).__name__)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """Memory limit and kills of the control group of this process and its children."""

    kills: int | None  # processes that the kernel has killed in the group because of its limit; None if unknown
    limit_mb: int | None  # None if there is no limit

    @classmethod
    def read(cls, root: Path = ROOT) -> MemoryGroup:
        try:
            lines = (root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            _, controllers, path = line.split(":", 2)
            controller = "memory" if "memory" in controllers.split(",") else controllers
            if controller not in _FILES:
                continue
            top = root / "sys/fs/cgroup" / controller
            # in a container, its control group is mounted at the path of the root group
            for directory in (top / path.lstrip("/"), top):
                counters, limit = (_text(directory / name) for name in _FILES[controller])
                if kills := re.search(r"^oom_kill (\d+)$", counters, re.MULTILINE):
                    return cls(int(kills[1]), int(limit) >> 20 if limit.strip().isdecimal() else None)
        return cls(None, None)


def exit_status(code: int, before: MemoryGroup | None = None) -> str:
    """Format an exit status of `subprocess`: `killed by signal 9`, `exit code 1`.

    `before` is the control group at the start of the process, to detect an out-of-memory kill.
    """
    if code >= 0:
        return f"exit code {code}"
    text = f"killed by signal {-code}"
    now = MemoryGroup.read() if code == -signal.SIGKILL and before else None
    if now and before and now.kills is not None and now.kills > (before.kills or 0):
        limit = f", whose limit is {now.limit_mb} MB" if now.limit_mb is not None else ""
        text += f" (by the kernel: out of memory in the control group of its host{limit})"
    return text


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
