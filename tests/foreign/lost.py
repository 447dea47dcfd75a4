"""Plain Spark with lost work: an executor ends while it runs tasks, and a task fails twice."""

import os
import signal
import time

from pyspark import TaskContext
from pyspark.context import SparkContext


def executor():
    """Return the PID of this Python worker's executor: the parent of the worker daemon."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def slow(index, rows):
    time.sleep(1.0)
    if index == 3 and TaskContext.get().attemptNumber() == 0:
        os.kill(executor(), signal.SIGKILL)
    return [index]


def flaky(index, rows):
    if index == 2 and TaskContext.get().attemptNumber() < 2:
        time.sleep(0.5)
        raise ValueError("a transient failure")
    return [index]


if __name__ == "__main__":
    sc = SparkContext()
    assert sorted(sc.parallelize(range(12), 12).mapPartitionsWithIndex(slow).collect()) == [*range(12)]
    assert sorted(sc.parallelize(range(6), 6).mapPartitionsWithIndex(flaky).collect()) == [*range(6)]
    sc.stop()
