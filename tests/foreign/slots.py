"""Plain Spark in one of four modes: tasks of unequal length for several task slots (`slots`), jobs for executors that
come and go (`dynamic`), an executor and tasks that fail (`lost`), a slow attempt for a speculative copy (`copy`)."""

import os
import signal
import sys
import time

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


def work(index, rows):
    """The work of one task."""
    first = TaskContext.get().attemptNumber() == 0
    time.sleep({"slots": 0.3 + 0.2 * (index % 5), "copy": 30.0 if first and index == 0 else 0.5}.get(mode, 1.0))
    if mode == "lost" and first and index == 3:
        # the executor is the parent of the worker daemon
        with open(f"/proc/{os.getppid()}/stat") as file:
            os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
    yield sum(rows)


def flaky(index, rows):
    if index == 2 and TaskContext.get().attemptNumber() < 2:
        time.sleep(0.5)
        raise ValueError("a transient failure")
    yield sum(rows)


mode, parts = sys.argv[1], int(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
numbers = spark.sparkContext.parallelize(range(1000), parts)
assert numbers.mapPartitionsWithIndex(work).sum() == 499500
if mode == "slots":
    assert sum(total for _, total in numbers.map(lambda n: (n % 7, n)).reduceByKey(int.__add__).collect()) == 499500
    twice = udf(lambda n: 2 * n, "long")
    assert spark.range(0, 1000, 1, 8).select(twice("id").alias("t")).agg({"t": "sum"}).collect()[0][0] == 999000
elif mode == "lost":
    assert numbers.mapPartitionsWithIndex(flaky).sum() == 499500
elif mode == "dynamic":
    time.sleep(8)
    assert numbers.mapPartitionsWithIndex(work).sum() == 499500
else:
    time.sleep(3)  # the slow attempt ends before the driver
spark.stop()
