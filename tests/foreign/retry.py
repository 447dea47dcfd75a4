"""Plain Spark whose work is lost and made again: an executor dies in a task."""

import os
import signal
import time

from pyspark import SparkConf, TaskContext
from pyspark.context import SparkContext


def executor():
    """The JVM that this Python worker works for: its parent is the worker daemon."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def dies(numbers):
    context = TaskContext.get()
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        time.sleep(2)
        os.kill(executor(), signal.SIGKILL)
        time.sleep(60)
    yield sum(numbers)


if __name__ == "__main__":
    conf = SparkConf().set("spark.task.maxFailures", "4").set("spark.executor.maxNumFailures", "4")
    sc = SparkContext(conf=conf)
    numbers = sc.parallelize(range(100), 2)
    assert sum(numbers.mapPartitions(dies).collect()) == 4950
    sc.stop()
