"""Plain Spark whose tasks sleep for long, until a file says that one has done so already: whoever kills something of
the job meanwhile sees it made again."""

import sys
import time
from pathlib import Path

from pyspark import SparkConf
from pyspark.context import SparkContext


def sleeps(begun):
    def task(numbers):
        first = not begun.exists()
        begun.touch()
        time.sleep(90 if first else 0.5)
        yield sum(numbers)

    return task


if __name__ == "__main__":
    conf = SparkConf().set("spark.task.maxFailures", "4").set("spark.executor.maxNumFailures", "4")
    sc = SparkContext(conf=conf)
    numbers = sc.parallelize(range(100), 2)
    assert sum(numbers.mapPartitions(sleeps(Path(sys.argv[1]))).collect()) == 4950
    sc.stop()
