"""TensorFlowOnSpark, InputMode.TENSORFLOW: a Keras model in a custom loop under MultiWorkerMirroredStrategy."""

import argparse

from pyspark.context import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(ctx.task_index)
    x = rng.normal(size=(args.batch_size, 8)).astype("float32")
    y = x.sum(axis=1, keepdims=True)

    def step_fn(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    @tf.function
    def train_step(x, y):
        losses = strategy.run(step_fn, args=(x, y))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    first = last = float(train_step(x, y))
    for _ in range(args.steps):
        last = float(train_step(x, y))
    print(f"{ctx.job_name}:{ctx.task_index} loss {first:.4f} -> {last:.4f}")
    assert last < first


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    sc = SparkContext(conf=None)
    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        input_mode=TFCluster.InputMode.TENSORFLOW,
        master_node="chief",
    )
    cluster.shutdown()
    sc.stop()
