"""TensorFlowOnSpark with a parameter server: TF1 graph mode, asynchronous. One ps and two workers: three executors."""

import argparse

from pyspark import SparkConf, SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    cluster = tf.train.ClusterSpec({job: ctx.cluster_spec[job] for job in ("ps", "worker")})
    own = f"/job:worker/task:{ctx.task_index}"
    config = tf1.ConfigProto(device_filters=["/job:ps", own] if ctx.job_name == "worker" else [])
    server = tf1.train.Server(cluster, job_name=ctx.job_name, task_index=ctx.task_index, config=config)
    if ctx.job_name == "ps":
        server.join()
    with tf1.device(tf1.train.replica_device_setter(worker_device=own, cluster=cluster)):
        step = tf1.train.get_or_create_global_step()
        w = tf1.get_variable("w", [8, 1], initializer=tf1.zeros_initializer())
        x = tf1.random_normal([32, 8])
        loss = tf1.reduce_mean(tf1.square(tf1.matmul(x, w) - tf1.reduce_sum(x, axis=1, keepdims=True)))
        train = tf1.train.GradientDescentOptimizer(0.02).minimize(loss, global_step=step)
    with tf1.train.MonitoredTrainingSession(
        server.target, is_chief=ctx.task_index == 0, config=config, hooks=[tf1.train.StopAtStepHook(args.steps)]
    ) as session:
        while not session.should_stop():
            session.run([train, loss])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    sc = SparkContext(conf=SparkConf().setAppName("ps"))
    cluster = TFCluster.run(sc, main_fun, args, 3, num_ps=1, input_mode=TFCluster.InputMode.TENSORFLOW)
    cluster.shutdown()
    sc.stop()
