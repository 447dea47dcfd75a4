"""Reduces a failure to one line: the stack traces of Python and Java, or the exit status of a trainer process.

A process that the kernel killed for lack of memory looks like any `kill -9`. If YARN itself runs in a container, it
cannot report the memory limit of this container. So dlobd reads the kernel's counter of such kills.
"""

from __future__ import annotations

import re
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd.hadoop.failures import failures
from dlobd.network.devices import ROOT, read_text
from dlobd.spans import JOB_FAILED_LINE

if TYPE_CHECKING:
    from dlobd.job.rank_status import JobStatus

MAX_CAUSE = 10_000
"""Longest recorded cause of a failure; the message of an exception may have any length."""

_FILES = {"memory": ("memory.oom_control", "memory.limit_in_bytes"), "": ("memory.events", "memory.max")}
"""Files with the out-of-memory kills and with the memory limit, in control groups of version 1 and 2. Source:
Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of Linux."""

_MARKS = ("died: ", "Reason: ", "ExecutorLostFailure", "Error: ", "Exception: ")
_NOISE = ("at ", "py4j", "org.apache.spark.SparkException")

_CLASS = r"(?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*"
_THROWN = re.compile(
    rf"^(?:Caused by: |Exception in thread \"[^\"\n]*\" |: )({_CLASS}(?:: .*?)?)(?=\n\s+at |\n\s+\.\.\. |\n*\Z)",
    re.MULTILINE | re.DOTALL,
)
_WRAPPERS = re.compile(
    rf"(?:(?!javax?\.){_CLASS}: |{_CLASS}: (?={_CLASS}: )"
    r"|(?:Caused by|User class threw exception|Failed to submit application_\w+ to YARN ?): )*"
    r"(?:(?:[a-z_$][\w$]*\.)+(?=[A-Z][\w$]*(?:: |\Z)))?"
)
"""Start of a message that names no cause; of a class of Java itself, only the package."""
_SHORT_CLASS = re.compile(r"^[A-Z]\w*: ")
_MODULE = re.compile(r"^(?:\w+\.)+(?=[A-Z_]\w*(?::|$))")

MAX_CAUSE_CHARACTERS = 500

_NOT_INSTALLED = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\w+)")
"""Condition of PySpark, such as a pandas UDF without PyArrow."""


def cause_in(text: str) -> str | None:
    """Return the error line of a failed task's Python traceback in Spark's message, else the cause in a Java stack
    trace; None without both."""
    _, _, rest = text.rpartition("Traceback (most recent call last):")
    lines = [line for line in rest.splitlines() if line and not line.startswith((" ", "\t"))] if rest != text else []
    return without_module(lines[0]) if lines else java_cause(text)


def cause_of(error: BaseException) -> str:
    """Return the cause of an error of dlobd's own job as one line of at most MAX_CAUSE_CHARACTERS."""
    cause = cause_in(str(error)) or str(error)
    return " ".join(cause.split())[:MAX_CAUSE_CHARACTERS] or type(error).__name__


def with_option(cause: str) -> str:
    """Return a cause, and for a missing package the option of dlobd that adds it."""
    if match := _NOT_INSTALLED.search(cause):
        return f"{cause.rstrip('.')}; --with {match[1].lower()} adds it"
    if cause.startswith("ModuleNotFoundError: No module named "):
        return f"{cause}; --with or another --python adds packages, spark-submit's --py-files adds modules"
    if "[PYTHON_VERSION_MISMATCH]" in cause:
        return f"{cause.rstrip('.')}; --python names the interpreter of driver and nodes"
    return cause


def java_cause(text: str) -> str | None:
    """Return the innermost message of a Java stack trace, within the outermost message that quotes it; else None."""
    messages = [without_classes(thrown) for thrown in _THROWN.findall(text)]
    return next((message for message in messages if _SHORT_CLASS.sub("", messages[-1]) in message), None)


def innermost_thrown(text: str) -> str | None:
    """Return class and message of the innermost cause in a Java stack trace, as one line; None without a trace."""
    thrown = _THROWN.findall(text)
    return " ".join(thrown[-1].split())[:MAX_CAUSE_CHARACTERS] if thrown else None


def without_classes(message: str) -> str:
    """Return a message as one line, without wrappers and classes of libraries at its start."""
    return " ".join(_WRAPPERS.sub("", message.strip(), count=1).split())


def error_line(error: BaseException) -> str:
    """Return an error of Python as one line, with its class without module."""
    lines = traceback.format_exception_only(error)[-1].strip().splitlines()
    own = type(error).__module__.partition(".")[0] == "dlobd"  # not the user's, whose message suffices
    return " ".join(str(error).split()) if own else without_module(lines[0])


def without_module(line: str) -> str:
    """Return an error line of Python without the module of the error's class."""
    return _MODULE.sub("", line)


def failure_line(error: Exception, status: JobStatus) -> str:
    """Return the cause that a rank or else a node reported, else the line of `error` that names the cause."""
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
                return without_classes(line)
    return next((line for line in lines if line), type(error).__name__)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """Memory limit and kills of the control group of this process and its children."""

    kills: int | None  # processes that the kernel has killed in the group because of its limit; None if unknown
    limit_mb: int | None  # None if there is no limit

    @classmethod
    def read(cls, root: Path = ROOT) -> MemoryGroup:
        for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
            _, controllers, path = line.split(":", 2)
            controller = "memory" if "memory" in controllers.split(",") else controllers
            if controller not in _FILES:
                continue
            top = root / "sys/fs/cgroup" / controller
            # in a container, its control group is mounted at the path of the root group
            for directory in (top / path.lstrip("/"), top):
                counters, limit = (read_text(directory / name) or "" for name in _FILES[controller])
                if kills := re.search(r"^oom_kill (\d+)$", counters, re.MULTILINE):
                    return cls(int(kills[1]), int(limit) >> 20 if limit.isdecimal() else None)
        return cls(None, None)


def exit_status(code: int, before: MemoryGroup) -> str:
    """Format an exit status of `subprocess`: `killed by signal 9`, `exit code 1`.

    `before` is the control group at the start of the process, to detect an out-of-memory kill.
    """
    if code >= 0:
        return f"exit code {code}"
    text = f"killed by signal {-code}"
    if code == -signal.SIGKILL and ((now := MemoryGroup.read()).kills or 0) > (before.kills or 0):
        limit = f", whose limit is {now.limit_mb} MB" if now.limit_mb is not None else ""
        text += f" (by the kernel: out of memory in the control group of its host{limit})"
    return text
