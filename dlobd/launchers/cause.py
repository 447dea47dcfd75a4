"""Why a Spark job failed, in one line, out of an error that holds three stack traces."""

from __future__ import annotations

from dlobd.launchers.base import Done

_MARKS = ("died: ", "Reason: ", "ExecutorLostFailure", "Error: ", "Exception: ")
_NOISE = ("at ", "py4j", "org.apache.spark.SparkException")


def one_line(error: Exception, done: Done) -> str:
    """What a rank said of itself, else the line of `error` that names the cause."""
    failure = done.failure()
    if failure:
        return failure
    lines = [line.strip() for line in str(error).splitlines()]
    for mark in _MARKS:
        for line in reversed(lines):
            if mark in line and not line.startswith(_NOISE):
                return line
    return next((line for line in lines if line), type(error).__name__)
