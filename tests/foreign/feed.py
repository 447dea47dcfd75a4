"""TensorFlowOnSpark, InputMode.SPARK: rows of an RDD through DataFeed, and a model that the chief saves at the end."""

import argparse

from pyspark.context import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.zeros([4, 1]))
    feed = ctx.get_data_feed(train_mode=True)

    @tf.function
    def train_step(x, y):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
            gradient = tape.gradient(loss, weights)
            reduced = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            weights.assign_sub(0.05 * reduced)
            return loss

        return strategy.run(replica, args=(x, y))

    steps = 0
    while not feed.should_stop() and steps < args.steps:
        rows = feed.next_batch(args.batch_size)
        if len(rows) < args.batch_size:
            break
        data = np.array(rows, dtype="float32")
        train_step(data[:, :4], data[:, 4:])
        steps += 1
    if not feed.should_stop():
        feed.terminate()
    print(f"{ctx.job_name}:{ctx.task_index} took {steps} steps, weights {weights.numpy().ravel()}")


def row(n):
    x = [(n * k % 17) / 17 for k in (3, 5, 7, 11)]
    return [*x, sum(x)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--grace_secs", type=int, default=3)
    args = parser.parse_args()
    sc = SparkContext()
    rows = args.cluster_size * args.batch_size * args.steps
    data = sc.parallelize(range(rows), args.cluster_size).map(row)
    cluster = TFCluster.run(
        sc, main_fun, args, args.cluster_size, 0, input_mode=TFCluster.InputMode.SPARK, master_node="chief"
    )
    cluster.train(data, num_epochs=1)
    cluster.shutdown(grace_secs=args.grace_secs)
    sc.stop()
