"""THE table of injection points: the place of a delay, the means, and the layer that the breakdown must blame.

By `signal`: a process is stopped from outside (SIGSTOP), from a line of a log on. To all other processes this looks
like a hung daemon, a paused machine or a stalled disk. By `application`: another application fills the queue. By
`control group`: the kernel limits the disk reads of a process. By `hook`: our own code waits inside the process, where
nothing outside knows the moment.

The ID of a container ends in its number: 000001 is the ApplicationMaster, 000002 the first executor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dlobd import spans as kinds
from dlobd.faults.observed_run import APPEARED, DRIVER, SPARK_SUBMIT
from dlobd.faults.targets import (
    Targets,
    container,
    daemons,
    driver_jvm,
    driver_python,
    is_java,
    is_python,
    is_python_daemon,
    maps,
    spark_submit,
)
from dlobd.faults.triggers import LogLine

QUEUE, DISK = "yarn/queue", "hdfs/disk"

By = Literal["signal", "application", "control group", "hook"]


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of processes after a line of a log. `within_s`: deadline for the processes to appear after the line."""

    trigger: LogLine
    targets: Targets
    within_s: float


@dataclass(frozen=True, slots=True)
class Point:
    """A place at the boundary of a layer. Its name begins with the layer.

    Attributes:
        often: whether a run passes the point many times, so that several delays fit into a run.
        whole_run: whether the delay has no interval of its own, so that only the totals show it.
        part: the span that must contain the delay; empty where any span of the layer will do.
        stop: the stop of a point by signal.
    """

    name: str
    by: By
    how: str
    often: bool = False
    part: str = ""
    whole_run: bool = False
    stop: Stop | None = None

    @property
    def layer(self) -> str:
        """The layer that the breakdown must blame."""
        return self.name.partition("/")[0]


def _stop(name: str, how: str, log: str, pattern: re.Pattern[str], targets: Targets, within_s: float = 2.0) -> Point:
    return Point(name, "signal", how, stop=Stop(LogLine(log, pattern), targets, within_s))


def _nodemanager(number: int, states: str) -> re.Pattern[str]:
    return re.compile(rf"Container (container_\w+_{number:06}) transitioned from {states}")


def _line(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))


def _call(method: str) -> re.Pattern[str]:
    """Return the pattern of the line that Hadoop's RPC client writes before a call."""
    return re.compile(f"Call -> .*: {method}")


NODEMANAGER = r"nodemanager-\d+"
FIRST_LINE = re.compile(f"^{APPEARED}$")
LOG4J_DONE = re.compile(r"main INFO Configuration \S+ started")
STARTS_S = 60.0
"""Deadline for a process whose start earlier delays may hold up."""
JVM_BOOTS = _line("WARNING: Using incubator modules")
"""A JVM of Spark writes this line before it loads its main class."""
MASTER_LOG, EXECUTOR_LOG, AUDIT = "container-1", "container-2", "namenode-audit"
RESOURCEMANAGER, NAMENODE, DATANODES = map(daemons, ("resourcemanager", "namenode", "datanode"))
MASTER, EXECUTOR = container(1, is_java), container(2, is_java)
_TRAINING_DATA = re.compile(
    # webhdfs: a redirected reader; dlobd itself opens the file before the window, without this question
    r"cmd=getfileinfo\s+src=\S*/train/part-\S*\s.*proto=webhdfs"
)

_ROWS = (
    Point("client/exec", "hook", "the child of dlobd waits before it becomes spark-submit"),
    _stop(
        "yarn/new-application", "ResourceManager, when spark-submit asks for an application id", SPARK_SUBMIT,
        _call("getNewApplication"), RESOURCEMANAGER,
    ),
    _stop(
        "yarn/submit", "ResourceManager, when spark-submit submits the application", SPARK_SUBMIT,
        _line("Submitting application application_"), RESOURCEMANAGER,
    ),
    Point(
        QUEUE, "application",
        "another application holds the queue's memory for ApplicationMasters; then it is killed",
    ),
    _stop(
        "yarn/localise", "NodeManager, when it localises the ApplicationMaster's container", NODEMANAGER,
        _nodemanager(1, "NEW to LOCALIZING"), daemons(""),
    ),
    _stop(
        "yarn/register", "ResourceManager, when the ApplicationMaster registers", MASTER_LOG,
        _call("registerApplicationMaster"), RESOURCEMANAGER,
    ),
    _stop(
        "yarn/localise-executor", "NodeManager, when it localises the executor's container", NODEMANAGER,
        _nodemanager(2, "NEW to LOCALIZING"), daemons(""),
    ),
    _stop(
        "spark/submit-start", "spark-submit's JVM, as soon as it exists", SPARK_SUBMIT, FIRST_LINE, spark_submit,
        STARTS_S,
    ),
    _stop("spark/submit-boot", "spark-submit's JVM, while it boots", SPARK_SUBMIT, JVM_BOOTS, spark_submit),
    _stop(
        "spark/driver-start", "the driver's Python, as soon as it exists", DRIVER, FIRST_LINE,
        driver_python(is_python), STARTS_S,
    ),
    _stop(
        "spark/import-pyspark", "the driver's Python, while it imports pyspark", DRIVER, FIRST_LINE,
        driver_python(maps("_lsprof")), STARTS_S,
    ),
    _stop(
        "spark/context", "the driver's JVM, when it begins its SparkContext", DRIVER, _line("Running Spark version"),
        driver_jvm,
    ),
    _stop(
        "spark/env", "the driver's JVM, while it creates its SparkEnv", DRIVER,
        _line("Successfully started service 'sparkDriver'"), driver_jvm,
    ),
    _stop(
        "spark/scheduler", "the driver's JVM, when it creates its task scheduler", DRIVER,
        re.compile("Using .*ShuffleManager$"), driver_jvm,
    ),
    _stop(
        "spark/rm-proxy", "spark-submit's JVM, when it makes its connection to the ResourceManager", SPARK_SUBMIT,
        _line("Connecting to ResourceManager"), spark_submit,
    ),
    _stop(
        "spark/staging", "spark-submit's JVM, when it opens the staging directory", SPARK_SUBMIT,
        _line("Application ID is assigned"), spark_submit,
    ),
    _stop(
        "spark/prepare", "spark-submit's JVM, when it prepares the ApplicationMaster's launch", SPARK_SUBMIT,
        _line("Setting up container launch context"), spark_submit,
    ),
    _stop(
        "spark/am-start", "the ApplicationMaster's container, as soon as its process exists", NODEMANAGER,
        _nodemanager(1, "SCHEDULED to RUNNING"), container(1),
    ),
    _stop("spark/am-boot", "the ApplicationMaster's JVM, while it boots", MASTER_LOG, JVM_BOOTS, MASTER),
    _stop("spark/am-name", "the ApplicationMaster, once log4j is configured", MASTER_LOG, LOG4J_DONE, MASTER),
    _stop(
        "spark/am-login", "the ApplicationMaster, at the first lines of its log", MASTER_LOG,
        _line("Registering signal handler for INT"), MASTER,
    ),
    _stop(
        "spark/am-staging", "the ApplicationMaster, when it opens the staging directory", MASTER_LOG,
        _line("ApplicationAttemptId: "), MASTER,
    ),
    _stop(
        "spark/am-connect", "the ApplicationMaster, when it is registered", MASTER_LOG,
        re.compile("Response <- .*: registerApplicationMaster"), MASTER,
    ),
    _stop(
        "spark/am-request", "the ApplicationMaster, when it prepares executors", MASTER_LOG,
        _line("Preparing Local resources"), MASTER,
    ),
    _stop(
        "spark/am-allocator", "the ApplicationMaster, when it creates its allocator", MASTER_LOG,
        _line("Default YARN executor launch context:"), MASTER,
    ),
    _stop(
        "spark/am-launch", "the ApplicationMaster, when it has a container for an executor", MASTER_LOG,
        _line("Launching container container_"), MASTER,
    ),
    _stop(
        "spark/executor-start", "the executor's container, as soon as its process exists", NODEMANAGER,
        _nodemanager(2, "SCHEDULED to RUNNING"), container(2),
    ),
    _stop(
        "spark/executor-boot", "the executor's JVM, as soon as it exists", EXECUTOR_LOG, FIRST_LINE, EXECUTOR, STARTS_S
    ),
    _stop(
        "spark/executor-main", "the executor's JVM, when it looks for its main class", EXECUTOR_LOG, JVM_BOOTS,
        EXECUTOR,
    ),
    _stop(
        "spark/executor-log4j", "the executor's JVM, when it configures log4j", EXECUTOR_LOG,
        _line("main INFO Using provider"), EXECUTOR,
    ),
    _stop("spark/executor-name", "the executor's JVM, once log4j is configured", EXECUTOR_LOG, LOG4J_DONE, EXECUTOR),
    _stop(
        "spark/executor-login", "the executor's JVM, at the first lines of its log", EXECUTOR_LOG,
        _line("Registering signal handler for INT"), container(2),
    ),
    _stop(
        "spark/executor-settings", "the executor's JVM, when it asks for its settings", EXECUTOR_LOG,
        _line("Changing view acls to"), EXECUTOR,
    ),
    _stop(
        "spark/executor-env", "the executor's JVM, while it creates its SparkEnv", EXECUTOR_LOG,
        _line("DiskBlockManager"), EXECUTOR,
    ),
    _stop(
        "spark/executor-register", "the executor's JVM, when it asks to be registered", EXECUTOR_LOG,
        _line("Connecting to driver: "), EXECUTOR,
    ),
    _stop(
        "spark/block-manager", "the driver's JVM, when it registers its BlockManager", DRIVER,
        _line("Registering BlockManager BlockManagerId(driver"), driver_jvm,
    ),
    _stop(
        "spark/splits", "the driver's JVM, when it looks for its input files", DRIVER,
        _line("Created broadcast 0 from"), driver_jvm,
    ),
    _stop(
        "spark/task", "the executor's JVM, when it is given its first task", EXECUTOR_LOG,
        _line("Got assigned task 0"), EXECUTOR,
    ),
    _stop(
        "spark/broadcast", "the executor's JVM, when it reads its task's broadcast", EXECUTOR_LOG,
        _line("Started reading broadcast variable"), EXECUTOR,
    ),
    _stop(
        "spark/function", "the executor's JVM, when it has read its task's broadcast", EXECUTOR_LOG,
        re.compile(r"Block broadcast_\d+ stored as values"), EXECUTOR,
    ),
    _stop(
        "spark/open-input", "the executor's JVM, when it opens its task's input", EXECUTOR_LOG,
        _line(" input split: "), EXECUTOR,
    ),
    _stop(
        "spark/python-start", "Spark's Python daemon, as soon as it exists", EXECUTOR_LOG,
        _line("Got assigned task 0"), container(2, is_python_daemon), STARTS_S,
    ),
    Point(
        "spark/slow-task", "hook", "a Spark task waits before it hands out a block, while the trainer wants it",
        often=True,
    ),
    _stop(
        "spark/stop", "the driver's JVM, when its SparkContext stops", DRIVER, _line("SparkContext is stopping"),
        driver_jvm,
    ),
    _stop(
        "spark/exit", "the driver's JVM, when its SparkContext has stopped", DRIVER,
        _line("Successfully stopped SparkContext"), driver_jvm,
    ),
    Point("launcher/rendezvous", "hook", "a node waits before it hands in its reservation or its address"),
    Point("feed/put", "hook", "the feeding side waits inside a put, while the trainer wants the block", often=True),
    Point("feed/get", "hook", "the trainer's side waits inside a get, although the block is there", often=True),
    _stop(
        "hdfs/staging", "NameNode, when spark-submit uploads a file", SPARK_SUBMIT, _line("Uploading resource"),
        NAMENODE,
    ),
    _stop(
        "hdfs/upload", "DataNodes, when spark-submit has created a file to upload", AUDIT,
        re.compile(r"cmd=create\s+src=\S*/\.sparkStaging/"), DATANODES,
    ),
    _stop(
        "hdfs/splits", "NameNode, when the driver asks where its input is", DRIVER,
        _call(r'getFileInfo "/dlobd/data/\S+/train"'), NAMENODE,
    ),
    _stop("hdfs/read", "DataNodes, when the trainer opens its input", AUDIT, _TRAINING_DATA, DATANODES),
    Point(DISK, "control group", "DataNodes read slowly from their disk, if root slows it down", whole_run=True),
    _stop(
        "hdfs/write", "DataNodes, when the trainer stores its model", AUDIT,
        re.compile(r"cmd=create\s+src=/dlobd/runs/\S+/model/"), DATANODES,
    ),
    _stop(
        "hdfs/event-log", "NameNode, when the driver closes its event log", DRIVER, _line("Stopping event writer for"),
        NAMENODE,
    ),
    _stop(
        "tensorflow/import", "the trainer's container, when it imports TensorFlow", EXECUTOR_LOG,
        _line("Got assigned task 0"), container(2, maps("_op_def_library_pybind")), STARTS_S,
    ),
    Point("tensorflow/first-step", "hook", "the trainer computes longer in its first step"),
    Point("tensorflow/step", "hook", "one rank computes longer in a step", often=True),
    Point("tensorflow/decode", "hook", "one rank waits before a step, while the others are in it", often=True),
    Point(
        "channel/pack", "hook", "one rank waits while it packs, as the others wait for it", often=True, part=kinds.PACK
    ),
    Point(
        "channel/wait", "hook", "one rank waits inside the barrier before a collective", often=True,
        part=kinds.WAIT_FOR_PEERS,
    ),
    Point(
        "channel/wire", "hook", "one rank waits inside a collective, which no other can end", often=True,
        part=kinds.WIRE,
    ),
    Point(
        "channel/unpack", "hook", "the chief waits while it makes tensors of the means", often=True, part=kinds.UNPACK
    ),
    Point("user/script", "hook", "the user's own script waits between two calls of Spark"),
    Point("user/task", "hook", "the user's own function waits in a Spark task"),
)  # fmt: skip

POINTS: Mapping[str, Point] = {row.name: row for row in _ROWS}
"""Name to point, in the order of the layers."""
