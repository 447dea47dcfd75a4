"""TensorFlowOnSpark with eval_node=True: chief and worker train; the evaluator runs until TensorFlowOnSpark kills it,
or with --ends until the last checkpoint."""

import sys
import tempfile
import time
from argparse import Namespace

from pyspark.context import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import tensorflow as tf

    weights = tf.Variable(tf.zeros([4, 1]))
    checkpoint = tf.train.Checkpoint(weights=weights)
    if ctx.job_name == "evaluator":
        while not (args.ends and str(tf.train.latest_checkpoint(args.directory)).endswith("-4")):
            time.sleep(0.5)
        return
    manager = tf.train.CheckpointManager(checkpoint, args.directory, max_to_keep=3)
    for step in range(200):
        x = tf.random.normal([64, 4])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - tf.reduce_sum(x, axis=1, keepdims=True)))
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        if ctx.job_name == "chief" and step % 50 == 49:
            manager.save()
            time.sleep(1)


if __name__ == "__main__":
    args = Namespace(directory=tempfile.mkdtemp(), ends="--ends" in sys.argv)
    sc = SparkContext()
    tensorflow = TFCluster.InputMode.TENSORFLOW
    cluster = TFCluster.run(sc, main_fun, args, 3, 0, input_mode=tensorflow, master_node="chief", eval_node=True)
    cluster.shutdown()
    sc.stop()
