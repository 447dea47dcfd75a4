"""Table of injection points: the place of a delay, the means, and the layer that the breakdown must blame.

By `signal`: SIGSTOP stops a process from outside, after a line of a log. To all other processes this looks like a hung
daemon, a paused machine or a stalled disk. By `application`: another application fills the queue. By `control group`:
the kernel limits the disk reads of a process. By `hook`: dlobd's own code waits inside the process, at a moment
that is not visible from outside.

Means of injection: dlobd.faults.sigstop, queue_filler, slow_disk, hooks. `score.py` judges.

The ID of a container ends in its number: 000001 is the ApplicationMaster, 000002 the first executor.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dlobd.faults.observed_run import APPEARED, DRIVER, SPARK_SUBMIT, LogLine
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

QUEUE, DISK = "yarn/queue", "hdfs/disk"

By = Literal["signal", "application", "control group", "hook"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop of processes after a line of a log. `within_s`: timeout for the processes to appear after the line."""

    trigger: LogLine
    targets: Targets
    within_s: float


@dataclass(frozen=True, slots=True)
class Point:
    """Place at the boundary of a layer; its name begins with the layer. A run passes it once, or (`often`) many times.

    part: the span that must contain the delay; empty for any span of the layer.
    """

    name: str
    by: By
    how: str
    often: bool = False
    part: str = ""
    stop: Stop | None = None

    @property
    def layer(self) -> str:
        """Layer that the breakdown must blame."""
        return self.name.partition("/")[0]

    @property
    def whole_run(self) -> bool:
        """True if the delay has no single interval and is visible only in the layer totals."""
        return self.by == "control group"


STARTS_S, RUNS_S = 60.0, 2.0
"""Timeouts for a process that starts, which earlier delays may hold up, and for a running process."""

_NODEMANAGER, _MASTER_LOG, _EXECUTOR_LOG, _AUDIT = r"nodemanager-\d+", "container-1", "container-2", "namenode-audit"
_DAEMONS = "resourcemanager", "nodemanager", "namenode", "datanode"
_RESOURCEMANAGER, _NODEMANAGERS, _NAMENODE, _DATANODES = map(daemons, _DAEMONS)
_STOPPED: Mapping[str, tuple[str, str, Targets, float]] = {
    "rm-client": ("ResourceManager", SPARK_SUBMIT, _RESOURCEMANAGER, RUNS_S),
    "rm-master": ("ResourceManager", _MASTER_LOG, _RESOURCEMANAGER, RUNS_S),
    "nodemanager": ("NodeManager", _NODEMANAGER, daemons(""), RUNS_S),
    "nm-master": ("NodeManagers", _MASTER_LOG, _NODEMANAGERS, RUNS_S),
    "submit-start": ("spark-submit's JVM", SPARK_SUBMIT, spark_submit, STARTS_S),
    "submit": ("spark-submit's JVM", SPARK_SUBMIT, spark_submit, RUNS_S),
    "python": ("the driver's Python", DRIVER, driver_python(is_python), STARTS_S),
    "pyspark": ("the driver's Python", DRIVER, driver_python(maps("_lsprof")), STARTS_S),
    "driver": ("the driver's JVM", DRIVER, driver_jvm, RUNS_S),
    "master-start": ("the ApplicationMaster's container", _NODEMANAGER, container(1), RUNS_S),
    "master": ("the ApplicationMaster's JVM", _MASTER_LOG, container(1, is_java), RUNS_S),
    "container": ("the executor's container", _NODEMANAGER, container(2), RUNS_S),
    "executor-start": ("the executor's JVM", _EXECUTOR_LOG, container(2, is_java), STARTS_S),
    "executor-all": ("the executor's JVM", _EXECUTOR_LOG, container(2), RUNS_S),
    "executor": ("the executor's JVM", _EXECUTOR_LOG, container(2, is_java), RUNS_S),
    "daemon": ("Spark's Python daemon", _EXECUTOR_LOG, container(2, is_python_daemon), STARTS_S),
    "trainer": ("the trainer", _EXECUTOR_LOG, container(2, maps("_op_def_library_pybind")), STARTS_S),
    "nn-client": ("NameNode", SPARK_SUBMIT, _NAMENODE, RUNS_S),
    "nn-driver": ("NameNode", DRIVER, _NAMENODE, RUNS_S),
    "nn-datanode": ("NameNode", _AUDIT, _NAMENODE, RUNS_S),
    "datanodes": ("DataNodes", _AUDIT, _DATANODES, RUNS_S),
}
"""Key of a stop in `_ROWS` -> name of the stopped process, the log with the trigger, the processes, the timeout."""

# hdfs/read waits for a reader's WebHDFS request; dlobd's own requests before the window have no getfileinfo
_ROWS = r"""
client/exec             | hook           | the child of dlobd waits before it becomes spark-submit
yarn/new-application    | rm-client      | when spark-submit asks for an application ID | Call -> .*: getNewApplication
yarn/submit             | rm-client      | when spark-submit submits the application | Submitting application app
yarn/queue              | application    | another application fills the queue's share for ApplicationMasters
yarn/localise           | nodemanager    | when it localises the master's files | CONTAINER 1 NEW to LOCALIZING
yarn/register           | rm-master      | when the ApplicationMaster registers | Call -> .*: registerApplicationMaster
yarn/request            | rm-master      | when the AM requests executors | Submitted \d+ unlocalized container
yarn/start-executor     | nm-master      | when the ApplicationMaster starts an executor | Call -> .*: startContainers
yarn/localise-executor  | nodemanager    | when it localises the executor's files | CONTAINER 2 NEW to LOCALIZING
spark/submit-start      | submit-start   | as soon as it exists | APPEARED
spark/submit-boot       | submit         | while it boots | BOOTS
spark/driver-start      | python         | as soon as it exists | APPEARED
spark/import-pyspark    | pyspark        | while it imports pyspark | APPEARED
spark/context           | driver         | when it begins its SparkContext | Running Spark version
spark/env               | driver         | while it creates its SparkEnv | Successfully started service 'sparkDriver'
spark/scheduler         | driver         | when it creates its task scheduler | Using .*ShuffleManager$
spark/rm-proxy          | submit         | when it connects to the ResourceManager | Connecting to ResourceManager
spark/staging           | submit         | when it opens the staging directory | Application ID is assigned
spark/prepare           | submit         | when it prepares the ApplicationMaster | Setting up container launch context
spark/am-start          | master-start   | as soon as its process exists | CONTAINER 1 SCHEDULED to RUNNING
spark/am-boot           | master         | while it boots | BOOTS
spark/am-name           | master         | once log4j is configured | main INFO Configuration \S+ started
spark/am-login          | master         | at the first lines of its log | Registering signal handler for INT
spark/am-staging        | master         | when it opens the staging directory | ApplicationAttemptId:
spark/am-connect        | master         | when it is registered | Response <- .*: registerApplicationMaster
spark/am-request        | master         | when it prepares executors | Preparing Local resources
spark/am-allocator      | master         | when it creates its allocator | Default YARN executor launch context:
spark/am-launch         | master         | when it has a container for an executor | Launching container container_
spark/executor-start    | container      | as soon as its process exists | CONTAINER 2 SCHEDULED to RUNNING
spark/executor-boot     | executor-start | as soon as it exists | APPEARED
spark/executor-main     | executor       | when it looks for its main class | BOOTS
spark/executor-log4j    | executor       | when it configures log4j | main INFO Using provider
spark/executor-name     | executor       | once log4j is configured | main INFO Configuration \S+ started
spark/executor-login    | executor-all   | at the first lines of its log | Registering signal handler for INT
spark/executor-settings | executor       | when it asks for its settings | Changing view acls to
spark/executor-env      | executor       | while it creates its SparkEnv | DiskBlockManager
spark/executor-register | executor       | when it asks to be registered | Connecting to driver:
spark/block-manager     | driver         | when it registers its BlockManager | Registering BlockManager Bl.*\(driver
spark/splits            | driver         | when it looks for its input files | Created broadcast 0 from
spark/task              | executor       | when it gets its first task | Got assigned task 0
spark/broadcast         | executor       | when it reads its task's broadcast | Started reading broadcast variable
spark/function          | executor       | when it has its task's broadcast | Block broadcast_\d+ stored as values
spark/open-input        | executor       | when it opens its task's input | input split:
spark/python-start      | daemon         | as soon as it exists | Got assigned task 0
spark/slow-task         | hook often     | a Spark task waits before it hands out a block, while the trainer waits
spark/stop              | driver         | when its SparkContext stops | SparkContext is stopping
spark/exit              | driver         | when its SparkContext has stopped | Successfully stopped SparkContext
launcher/rendezvous     | hook           | a node waits before it sends its reservation or its address
feed/put                | hook often     | the feeding side waits inside a put, while the trainer waits for the block
feed/get                | hook often     | the trainer's side waits inside a get, although the block is there
hdfs/staging            | nn-client      | when spark-submit uploads a file | Uploading resource
hdfs/upload             | datanodes      | when spark-submit has created a file | cmd=create\s+src=\S*/\.sparkStaging/
hdfs/splits             | nn-driver      | when the driver lists input | Call -> .*: getFileInfo "/dlobd/data/\S+/train"
hdfs/read               | datanodes      | when the trainer opens its input | INPUT
hdfs/disk               | control group  | DataNodes read slowly from their disk (needs root)
hdfs/write              | datanodes      | when the trainer stores its model | cmd=create\s+src=/dlobd/runs/\S+/model/
hdfs/model              | nn-datanode    | when a DataNode stores the model | cmd=create\s+src=/dlobd/runs/\S+/model/
hdfs/event-log          | nn-driver      | when the driver closes its event log | Stopping event writer for
tensorflow/import       | trainer        | when it imports TensorFlow | Got assigned task 0
tensorflow/first-step   | hook           | the trainer computes longer in its first step
tensorflow/step         | hook often     | one rank computes longer in a step
tensorflow/decode       | hook often     | one rank waits before a step, while the other ranks are in it
channel/pack            | hook often     | one rank waits in its `pack`, while the other ranks wait for it
channel/wait            | hook often     | one rank waits in the barrier before a collective, its `wait for peers`
channel/wire            | hook often     | one rank waits in a collective, its `wire`, so no rank can complete it
channel/unpack          | hook often     | the chief waits in its `unpack`, while it converts the means to tensors
user/script             | hook           | the user's own script waits between two calls of Spark
user/import             | hook           | the user's own function imports a module while a worker unpickles it
user/task               | hook           | the user's own function waits in a Spark task
"""
"""Columns: name, means or key of `_STOPPED`, description, trigger. A span in backquotes must contain the delay."""

_TRIGGERS = {
    "APPEARED": f"^{APPEARED}$",
    "BOOTS": "WARNING: Using incubator modules",  # a JVM of Spark writes this line before it loads its main class
    "INPUT": r"cmd=getfileinfo\s+src=\S*/train/part-\S*\s.*proto=webhdfs",
}


def _point(row: str) -> Point:
    name, by, how, *rest = map(str.strip, row.split(" | ", 3))
    means = by.removesuffix(" often")
    for each in get_args(By):
        if each == means:
            part = re.search("`(.*)`", how)
            return Point(name, each, how, by != means, part[1] if part else "")
    process, log, targets, within_s = _STOPPED[by]
    trigger = re.sub(r"CONTAINER (\d)", r"Container (container_\\w+_00000\1) transitioned from", rest[0])
    stop = Stop(LogLine(log, re.compile(_TRIGGERS.get(trigger, trigger))), targets, within_s)
    return Point(name, "signal", f"{process}, {how}", stop=stop)


POINTS: Mapping[str, Point] = {point.name: point for point in map(_point, _ROWS.strip().splitlines())}
"""Injection points by name, in the order of the layers."""
