"""Plain Spark job with little work, whose time is mostly the start of its JVMs."""

from pyspark.context import SparkContext

if __name__ == "__main__":
    sc = SparkContext()
    assert sc.parallelize(range(100), 2).map(lambda number: 2 * number).sum() == 9900
    sc.stop()
