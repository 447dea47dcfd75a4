"""Plain Spark with several task slots per executor: tasks of unequal length, a shuffle, a DataFrame with a UDF."""

import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


def work(index, rows):
    time.sleep(0.3 + 0.2 * (index % 5))
    return [sum(rows)]


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    sc = spark.sparkContext
    assert sum(sc.parallelize(range(1600), 16).mapPartitionsWithIndex(work).collect()) == 1279200
    pairs = sc.parallelize(range(1000), 8).map(lambda n: (n % 7, n)).reduceByKey(lambda a, b: a + b).collect()
    assert sum(total for _, total in pairs) == 499500
    twice = udf(lambda n: 2 * n, "long")
    assert spark.range(0, 1000, 1, 8).select(twice("id").alias("t")).agg({"t": "sum"}).collect()[0][0] == 999000
    spark.stop()
