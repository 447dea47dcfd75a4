"""Why a Spark job failed, in one line, out of an error that holds three stack traces."""

from __future__ import annotations

from dlobd.hadoop.failures import failures
from dlobd.job.launchers.base import Done

_OWN = "dlobd: job failed: "
"""How a packed environment's launcher begins, where a node lacks its interpreter (`dlobd.run.packing`)."""

_MARKS = ("died: ", "Reason: ", "ExecutorLostFailure", "Error: ", "Exception: ")
_NOISE = ("at ", "py4j", "org.apache.spark.SparkException")


def one_line(error: Exception, done: Done) -> str:
    """What a rank said of itself, else what a node said, else the line of `error` that names the cause."""
    try:
        if failure := done.last_word():
            return failure
    except failures():
        pass  # HDFS is what has failed; `error` knows of it
    lines = [line.strip() for line in str(error).splitlines()]
    if own := next((line for line in lines if line.startswith(_OWN)), None):
        return own.removeprefix(_OWN)
    for mark in _MARKS:
        for line in reversed(lines):
            if mark in line and not line.startswith(_NOISE):
                return line
    return next((line for line in lines if line), type(error).__name__)
