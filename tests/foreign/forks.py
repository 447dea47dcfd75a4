"""Processes beside Spark: a pool of a process of the driver, and processes of each task."""

import multiprocessing
import time
from multiprocessing.pool import Pool

from pyspark.sql import SparkSession


def prepare(seed):
    import pandas as pd

    time.sleep(1.5)  # a killed process has written what is older than a second
    return float(pd.Series(range(1000)).sum()) + seed


def prepare_all(results):
    with Pool(2) as pool:
        results.put(pool.map(prepare, range(4)))


def in_task(seeds):
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=lambda seed=seed: results.put(prepare(seed))) for seed in seeds]
    for child in children:
        child.start()
    yield from [results.get() for _ in children]
    for child in children:
        child.join()


if __name__ == "__main__":
    results = multiprocessing.Queue()
    process = multiprocessing.Process(target=prepare_all, args=(results,))
    process.start()
    parts = results.get()
    process.join()
    spark = SparkSession.builder.appName("forks").getOrCreate()
    assert spark.sparkContext.parallelize(range(4), 2).mapPartitions(in_task).sum() == sum(parts) == 4 * 499500 + 6
    spark.stop()
