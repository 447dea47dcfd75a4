"""TensorFlowOnSpark: several clusters one after the other in one application, as its own tests start them."""

import argparse
import time

from pyspark.context import SparkContext
from tensorflowonspark import TFCluster, TFNode


def add(args, ctx):
    import tensorflow as tf

    assert tf.math.add(1, 2).numpy() == 3


def square(args, ctx):
    import tensorflow as tf

    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        batch = feed.next_batch(10)
        if batch:
            feed.batch_results(tf.math.square(batch).numpy())
    if args["late"]:
        time.sleep(1)
        raise ValueError("after the feed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1000)
    args = parser.parse_args()
    sc = SparkContext()
    cluster = TFCluster.run(sc, add, {}, args.cluster_size, 0)
    cluster.shutdown()
    rows = sc.parallelize([[n] for n in range(args.rows)], 10)
    for late in (False, True):
        cluster = TFCluster.run(sc, square, {"late": late}, args.cluster_size, 0, input_mode=TFCluster.InputMode.SPARK)
        total = cluster.inference(rows).map(lambda row: int(row[0])).sum()
        assert total == sum(n * n for n in range(args.rows)), total
        failure = ""
        try:
            cluster.shutdown(grace_secs=3)
        except Exception as error:
            failure = str(error)
        assert ("after the feed" in failure) == late, failure
    sc.stop()
