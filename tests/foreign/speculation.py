"""Plain Spark with a slow attempt of a task, whose speculative copy is faster."""

import time

from pyspark import TaskContext
from pyspark.context import SparkContext


def work(index, rows):
    time.sleep(30.0 if index == 0 and TaskContext.get().attemptNumber() == 0 else 0.5)
    return [index]


if __name__ == "__main__":
    sc = SparkContext()
    assert sorted(sc.parallelize(range(8), 8).mapPartitionsWithIndex(work).collect()) == [*range(8)]
    time.sleep(3)  # the slow attempt ends before the driver
    sc.stop()
