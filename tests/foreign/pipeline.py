"""TensorFlowOnSpark's ML pipeline: TFEstimator fits on a DataFrame, TFModel transforms one. Usage: pipeline.py DIR"""

import argparse
import sys

from pyspark.sql import SparkSession
from tensorflowonspark.pipeline import TFEstimator


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        w = tf.Variable(tf.zeros([2, 1]))
    feed = ctx.get_data_feed(train_mode=True)
    for _ in range(args.steps):
        rows = feed.next_batch(args.batch_size)
        if len(rows) < args.batch_size:
            break
        x = np.array([row[0] for row in rows], dtype="float32")
        y = np.array([row[1] for row in rows], dtype="float32").reshape(-1, 1)

        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
            gradient = tape.gradient(loss, w)
            w.assign_sub(0.3 * tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient))

        strategy.run(replica, args=(x, y))
    if ctx.job_name == "chief":
        module = tf.Module()
        module.w = tf.Variable(w.numpy())
        signature = tf.TensorSpec([None, 2], tf.float32, name="x")
        module.predict = tf.function(lambda x: {"y": tf.matmul(x, module.w)}, input_signature=[signature])
        tf.saved_model.save(module, args.export_dir, signatures={"serving_default": module.predict})
    while not feed.should_stop():
        feed.next_batch(args.batch_size)


if __name__ == "__main__":
    spark = SparkSession.builder.appName("pipeline").getOrCreate()
    points = [([n % 7 / 7, n % 5 / 5], 3.0 * (n % 7) / 7 + 2.0 * (n % 5) / 5) for n in range(12800)]
    frame = spark.createDataFrame(points, ["x", "y"]).repartition(2)
    args = argparse.Namespace(steps=100, batch_size=64, export_dir=sys.argv[1])
    estimator = (
        TFEstimator(main_fun, args)
        .setInputMapping({"x": "x", "y": "y"})
        .setMasterNode("chief")
        .setClusterSize(2)
        .setEpochs(1)
        .setBatchSize(64)
        .setGraceSecs(15)
        .setExportDir(sys.argv[1])
    )
    model = estimator.fit(frame)
    model.setInputMapping({"x": "x"}).setOutputMapping({"y": "prediction"}).setSignatureDefKey("serving_default")
    model.setTagSet("serve").setExportDir(sys.argv[1])
    found = model.transform(spark.createDataFrame([([1.0, 1.0],)], ["x"])).collect()
    print(found)
    assert abs(found[0].prediction[0] - 5.0) < 0.2, found
    spark.stop()
