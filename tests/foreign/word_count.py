"""Plain PySpark: words of lines, counted by RDD and by DataFrame with a UDF. Usage: word_count.py [LINES]"""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.types import StringType


def shout(word):
    time.sleep(0.0005)
    return word.upper()


if __name__ == "__main__":
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    spark = SparkSession.builder.appName("word count").getOrCreate()
    sc = spark.sparkContext
    text = sc.parallelize([f"the quick brown fox {n % 7}" for n in range(lines)], 4)
    counts = text.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).collect()
    assert dict(counts)["the"] == lines
    frame = spark.createDataFrame(counts, ["word", "n"])
    loud = frame.select(udf(shout, StringType())(col("word")).alias("word"), "n").groupBy("word").sum("n")
    print(sorted(loud.collect()))
    spark.stop()
