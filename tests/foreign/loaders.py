"""TensorFlowOnSpark, InputMode.SPARK: each rank forks processes that decode its batches, as data loaders do."""

from argparse import Namespace

from pyspark.context import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import multiprocessing

    import tensorflow as tf

    def serve(tasks, results):
        import pandas as pd

        for rows in iter(tasks.get, None):
            results.put(pd.DataFrame(rows).to_numpy(dtype="float32"))

    fork = multiprocessing.get_context("fork")
    tasks, results = fork.Queue(), fork.Queue()
    children = [fork.Process(target=serve, args=(tasks, results), daemon=True) for _ in range(2)]
    for child in children:
        child.start()
    feed = ctx.get_data_feed(train_mode=True)
    weights = tf.Variable(tf.zeros([3, 1]))
    while not feed.should_stop():
        if rows := feed.next_batch(100):
            tasks.put(rows)
            weights.assign_add(tf.reduce_mean(results.get(), axis=0)[:, None])


if __name__ == "__main__":
    sc = SparkContext()
    rows = sc.parallelize(range(1200), 4).map(lambda n: [n, n % 3, 1])
    cluster = TFCluster.run(sc, main_fun, Namespace(), 2, 0, input_mode=TFCluster.InputMode.SPARK, master_node="chief")
    cluster.train(rows, num_epochs=1)
    cluster.shutdown(grace_secs=3)
    sc.stop()
