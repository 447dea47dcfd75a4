"""THE table of injection points: where a delay is put, by what, and which layer has to be blamed for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlobd import spans as kinds

By = Literal["signal", "application", "control group", "hook"]
"""From outside: a process is stopped; another application holds the queue; the kernel limits a process. By a hook of
our own inside the process, where nothing outside knows the moment."""


@dataclass(frozen=True, slots=True)
class Point:
    """One place at a layer's boundary.

    `often`: whether a run passes there many times, so that several delays fit into one run.
    `whole_run`: it has no interval of its own, and shows in the totals alone.
    `part`: the span that the delay has to be found in; empty where any of the layer will do.
    """

    name: str
    layer: str
    by: By
    how: str
    often: bool = False
    part: str = ""
    whole_run: bool = False


_ROWS = (
    Point("client/exec", "client", "hook", "the child of dlobd waits before it becomes spark-submit"),
    Point("yarn/new-application", "yarn", "signal", "ResourceManager, when spark-submit asks for an application id"),
    Point("yarn/submit", "yarn", "signal", "ResourceManager, when spark-submit submits the application"),
    Point(
        "yarn/queue", "yarn", "application",
        "another application holds the queue's memory for ApplicationMasters; then it is killed",
    ),
    Point("yarn/localise", "yarn", "signal", "NodeManager, when it localises the ApplicationMaster's container"),
    Point("yarn/register", "yarn", "signal", "ResourceManager, when the ApplicationMaster registers"),
    Point("yarn/localise-executor", "yarn", "signal", "NodeManager, when it localises the executor's container"),
    Point("spark/submit-start", "spark", "signal", "spark-submit's JVM, as soon as it exists"),
    Point("spark/submit-boot", "spark", "signal", "spark-submit's JVM, while it boots"),
    Point("spark/driver-start", "spark", "signal", "the driver's Python, as soon as it exists"),
    Point("spark/import-pyspark", "spark", "signal", "the driver's Python, while it imports pyspark"),
    Point("spark/context", "spark", "signal", "the driver's JVM, when it begins its SparkContext"),
    Point("spark/env", "spark", "signal", "the driver's JVM, while it creates its SparkEnv"),
    Point("spark/scheduler", "spark", "signal", "the driver's JVM, when it creates its task scheduler"),
    Point(
        "spark/rm-proxy", "spark", "signal", "spark-submit's JVM, when it makes its connection to the ResourceManager"
    ),
    Point("spark/staging", "spark", "signal", "spark-submit's JVM, when it opens the staging directory"),
    Point("spark/prepare", "spark", "signal", "spark-submit's JVM, when it prepares the ApplicationMaster's launch"),
    Point("spark/am-start", "spark", "signal", "the ApplicationMaster's container, as soon as its process exists"),
    Point("spark/am-boot", "spark", "signal", "the ApplicationMaster's JVM, while it boots"),
    Point("spark/am-name", "spark", "signal", "the ApplicationMaster, once log4j is configured"),
    Point("spark/am-login", "spark", "signal", "the ApplicationMaster, at the first lines of its log"),
    Point("spark/am-staging", "spark", "signal", "the ApplicationMaster, when it opens the staging directory"),
    Point("spark/am-connect", "spark", "signal", "the ApplicationMaster, when it is registered"),
    Point("spark/am-request", "spark", "signal", "the ApplicationMaster, when it prepares executors"),
    Point("spark/am-allocator", "spark", "signal", "the ApplicationMaster, when it creates its allocator"),
    Point("spark/am-launch", "spark", "signal", "the ApplicationMaster, when it has a container for an executor"),
    Point("spark/executor-start", "spark", "signal", "the executor's container, as soon as its process exists"),
    Point("spark/executor-boot", "spark", "signal", "the executor's JVM, as soon as it exists"),
    Point("spark/executor-main", "spark", "signal", "the executor's JVM, when it looks for its main class"),
    Point("spark/executor-log4j", "spark", "signal", "the executor's JVM, when it configures log4j"),
    Point("spark/executor-name", "spark", "signal", "the executor's JVM, once log4j is configured"),
    Point("spark/executor-login", "spark", "signal", "the executor's JVM, at the first lines of its log"),
    Point("spark/executor-settings", "spark", "signal", "the executor's JVM, when it asks for its settings"),
    Point("spark/executor-env", "spark", "signal", "the executor's JVM, while it creates its SparkEnv"),
    Point("spark/executor-register", "spark", "signal", "the executor's JVM, when it asks to be registered"),
    Point("spark/block-manager", "spark", "signal", "the driver's JVM, when it registers its BlockManager"),
    Point("spark/splits", "spark", "signal", "the driver's JVM, when it looks for its input files"),
    Point("spark/task", "spark", "signal", "the executor's JVM, when it is given its first task"),
    Point("spark/broadcast", "spark", "signal", "the executor's JVM, when it reads its task's broadcast"),
    Point("spark/function", "spark", "signal", "the executor's JVM, when it has read its task's broadcast"),
    Point("spark/open-input", "spark", "signal", "the executor's JVM, when it opens its task's input"),
    Point("spark/python-start", "spark", "signal", "Spark's Python daemon, as soon as it exists"),
    Point(
        "spark/slow-task", "spark", "hook",
        "a Spark task waits before it hands out a block, while the trainer wants it", True,
    ),
    Point("spark/stop", "spark", "signal", "the driver's JVM, when its SparkContext stops"),
    Point("spark/exit", "spark", "signal", "the driver's JVM, when its SparkContext has stopped"),
    Point("launcher/rendezvous", "launcher", "hook", "a node waits before it hands in its reservation or its address"),
    Point("feed/put", "feed", "hook", "the feeding side waits inside a put, while the trainer wants the block", True),
    Point("feed/get", "feed", "hook", "the trainer's side waits inside a get, although the block is there", True),
    Point("hdfs/staging", "hdfs", "signal", "NameNode, when spark-submit uploads a file"),
    Point("hdfs/upload", "hdfs", "signal", "DataNodes, when spark-submit has created a file to upload"),
    Point("hdfs/splits", "hdfs", "signal", "NameNode, when the driver asks where its input is"),
    Point("hdfs/read", "hdfs", "signal", "DataNodes, when the trainer opens its input"),
    Point(
        "hdfs/disk", "hdfs", "control group", "DataNodes read slowly from their disk, if root slows it down",
        whole_run=True,
    ),
    Point("hdfs/write", "hdfs", "signal", "DataNodes, when the trainer stores its model"),
    Point("hdfs/event-log", "hdfs", "signal", "NameNode, when the driver closes its event log"),
    Point("tensorflow/import", "tensorflow", "signal", "the trainer's container, when it imports TensorFlow"),
    Point("tensorflow/first-step", "tensorflow", "hook", "the trainer computes for so long in its first step"),
    Point("tensorflow/step", "tensorflow", "hook", "one rank computes for so long in a step", True),
    Point("tensorflow/decode", "tensorflow", "hook", "one rank waits before a step, while the others are in it", True),
    Point(
        "channel/pack", "channel", "hook", "one rank waits while it packs, as the others wait for it", True, kinds.PACK
    ),
    Point(
        "channel/wait", "channel", "hook", "one rank waits inside the barrier before a collective", True,
        kinds.WAIT_FOR_PEERS,
    ),
    Point(
        "channel/wire", "channel", "hook", "one rank waits inside a collective, which no other can end", True,
        kinds.WIRE,
    ),
    Point(
        "channel/unpack", "channel", "hook", "the chief waits while it makes tensors of the means", True, kinds.UNPACK
    ),
    Point("user/script", "user", "hook", "the user's own script waits between two calls of Spark"),
    Point("user/task", "user", "hook", "the user's own function waits in a Spark task"),
)  # fmt: skip

POINTS: dict[str, Point] = {row.name: row for row in _ROWS}
"""Name to point, in the order of the layers."""
