"""Plain Spark whose number of executors grows for a long job, shrinks while the driver sleeps, and grows again."""

import time

from pyspark.sql import SparkSession


def slow(n):
    time.sleep(1.0)
    return n


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    sc = spark.sparkContext
    assert sc.parallelize(range(4), 1).sum() == 6
    assert sc.parallelize(range(24), 24).map(slow).sum() == 276
    time.sleep(8)
    assert sc.parallelize(range(6), 6).map(slow).sum() == 15
    spark.stop()
