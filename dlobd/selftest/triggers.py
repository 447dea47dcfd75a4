"""THE table of delays by signal: the line of a log after which, and the processes that are stopped (SIGSTOP).

To all other processes this looks like a hung daemon, a paused machine or a stalled disk. A container's id ends in the
number of its container: 000001 is the ApplicationMaster's, 000002 the first executor's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import ProcessId, identify, mentioning
from dlobd.selftest.log_tail import APPEARED, DRIVER, SPARK_SUBMIT, WatchedRun

Targets = Callable[[WatchedRun, str, re.Match[str]], Sequence[ProcessId]]
"""The processes to stop; gets the log's name and the match."""

SPARK_SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True, slots=True)
class Trigger:
    """`log`: the full name of a log, as a pattern. `within_s`: how long after the line the processes may come to be."""

    log: str
    pattern: re.Pattern[str]
    targets: Targets
    within_s: float = 2.0


# ---- who is stopped


def daemons_of(cluster: EmbeddedCluster, kind: str) -> list[ProcessId]:
    """The running daemons of a kind, or the one of this name."""
    pids = [pid for name, pid in cluster.daemon_pids().items() if name.startswith(kind)]
    return [process for pid in pids if (process := identify(pid))]


def _daemons(kind: str) -> Targets:
    """The daemons of a kind, or of a log's name."""

    def targets(run: WatchedRun, log: str, match: re.Match[str]) -> list[ProcessId]:
        return daemons_of(run.cluster, kind or log)

    return targets


def _container(number: int, holds: Callable[[psutil.Process], bool] = lambda process: True) -> Targets:
    """The processes of a container for which something holds."""

    def targets(run: WatchedRun, log: str, match: re.Match[str]) -> list[ProcessId]:
        container = match[1] if match.re.groups else run.container(number)
        return [one for one in mentioning(container) if _holds(one, holds)] if container else []

    return targets


def _spark_submit(run: WatchedRun, log: str, match: re.Match[str]) -> list[ProcessId]:
    """spark-submit's JVM, which in client mode is the driver's."""
    below = psutil.Process().children(recursive=True)
    return [one for child in below if (one := identify(child.pid)) and _holds(one, _is_spark_submit)]


def _driver_jvm(run: WatchedRun, log: str, match: re.Match[str]) -> Sequence[ProcessId]:
    return _container(1, _is_java)(run, log, match) if run.cluster_mode else _spark_submit(run, log, match)


def _driver_python(holds: Callable[[psutil.Process], bool]) -> Targets:
    """The child of the driver's JVM, once something holds for it."""

    def targets(run: WatchedRun, log: str, match: re.Match[str]) -> list[ProcessId]:
        found = []
        for jvm in _driver_jvm(run, log, match):
            try:
                children = psutil.Process(jvm.pid).children()
            except psutil.Error:
                continue
            found += [one for child in children if (one := identify(child.pid)) and _holds(one, holds)]
        return found

    return targets


def _holds(process: ProcessId, holds: Callable[[psutil.Process], bool]) -> bool:
    try:
        return holds(psutil.Process(process.pid))
    except (psutil.Error, OSError):
        return False  # it is gone


def _is_java(process: psutil.Process) -> bool:
    return Path((process.cmdline() or [""])[0]).name == "java"


def _is_python(process: psutil.Process) -> bool:
    return Path((process.cmdline() or [""])[0]).name.startswith("python")


def _is_python_daemon(process: psutil.Process) -> bool:
    return _is_python(process) and any(word.endswith("daemon") for word in process.cmdline())


def _is_spark_submit(process: psutil.Process) -> bool:
    return _is_java(process) and SPARK_SUBMIT_CLASS in process.cmdline()


def _maps(library: str) -> Callable[[psutil.Process], bool]:
    """Whether a Python has this extension module, which one import alone loads, halfway through."""

    def holds(process: psutil.Process) -> bool:
        return _is_python(process) and library in Path(f"/proc/{process.pid}/maps").read_text()

    return holds


# ---- when

_STATE = r"Container (container_\w+_{number:06}) transitioned from {states}"


def _nodemanager(number: int, states: str) -> re.Pattern[str]:
    return re.compile(_STATE.format(number=number, states=states))


def _line(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))


def _call(method: str) -> re.Pattern[str]:
    """A call of Hadoop's RPC client begins."""
    return re.compile(f"Call -> .*: {method}")


NODEMANAGER = r"nodemanager-\d+"
FIRST_LINE = re.compile(f"^{APPEARED}$")
LOG4J_DONE = re.compile(r"main INFO Configuration \S+ started")
STARTS_S = 60.0
"""So long a process may take that earlier delays hold up."""
JVM_BOOTS = _line("WARNING: Using incubator modules")
"""What a JVM of Spark writes before its main class is loaded."""

TRIGGERS: Mapping[str, Trigger] = {
    "yarn/new-application": Trigger(SPARK_SUBMIT, _call("getNewApplication"), _daemons("resourcemanager")),
    "yarn/submit": Trigger(SPARK_SUBMIT, _line("Submitting application application_"), _daemons("resourcemanager")),
    "yarn/localise": Trigger(NODEMANAGER, _nodemanager(1, "NEW to LOCALIZING"), _daemons("")),
    "yarn/register": Trigger("container-1", _call("registerApplicationMaster"), _daemons("resourcemanager")),
    "yarn/localise-executor": Trigger(NODEMANAGER, _nodemanager(2, "NEW to LOCALIZING"), _daemons("")),
    "spark/submit-start": Trigger(SPARK_SUBMIT, FIRST_LINE, _spark_submit, STARTS_S),
    "spark/submit-boot": Trigger(SPARK_SUBMIT, JVM_BOOTS, _spark_submit),
    "spark/driver-start": Trigger(DRIVER, FIRST_LINE, _driver_python(_is_python), STARTS_S),
    "spark/import-pyspark": Trigger(DRIVER, FIRST_LINE, _driver_python(_maps("_lsprof")), STARTS_S),
    "spark/context": Trigger(DRIVER, _line("Running Spark version"), _driver_jvm),
    "spark/env": Trigger(DRIVER, _line("Successfully started service 'sparkDriver'"), _driver_jvm),
    "spark/scheduler": Trigger(DRIVER, re.compile("Using .*ShuffleManager$"), _driver_jvm),
    "spark/rm-proxy": Trigger(SPARK_SUBMIT, _line("Connecting to ResourceManager"), _spark_submit),
    "spark/staging": Trigger(SPARK_SUBMIT, _line("Application ID is assigned"), _spark_submit),
    "spark/prepare": Trigger(SPARK_SUBMIT, _line("Setting up container launch context"), _spark_submit),
    "spark/am-start": Trigger(NODEMANAGER, _nodemanager(1, "SCHEDULED to RUNNING"), _container(1)),
    "spark/am-boot": Trigger("container-1", JVM_BOOTS, _container(1, _is_java)),
    "spark/am-name": Trigger("container-1", LOG4J_DONE, _container(1, _is_java)),
    "spark/am-login": Trigger("container-1", _line("Registering signal handler for INT"), _container(1, _is_java)),
    "spark/am-staging": Trigger("container-1", _line("ApplicationAttemptId: "), _container(1, _is_java)),
    "spark/am-connect": Trigger(
        "container-1", re.compile("Response <- .*: registerApplicationMaster"), _container(1, _is_java)
    ),
    "spark/am-request": Trigger("container-1", _line("Preparing Local resources"), _container(1, _is_java)),
    "spark/am-allocator": Trigger(
        "container-1", _line("Default YARN executor launch context:"), _container(1, _is_java)
    ),
    "spark/am-launch": Trigger("container-1", _line("Launching container container_"), _container(1, _is_java)),
    "spark/executor-start": Trigger(NODEMANAGER, _nodemanager(2, "SCHEDULED to RUNNING"), _container(2)),
    "spark/executor-boot": Trigger("container-2", FIRST_LINE, _container(2, _is_java), STARTS_S),
    "spark/executor-main": Trigger("container-2", JVM_BOOTS, _container(2, _is_java)),
    "spark/executor-log4j": Trigger("container-2", _line("main INFO Using provider"), _container(2, _is_java)),
    "spark/executor-name": Trigger("container-2", LOG4J_DONE, _container(2, _is_java)),
    "spark/executor-login": Trigger("container-2", _line("Registering signal handler for INT"), _container(2)),
    "spark/executor-settings": Trigger("container-2", _line("Changing view acls to"), _container(2, _is_java)),
    "spark/executor-env": Trigger("container-2", _line("DiskBlockManager"), _container(2, _is_java)),
    "spark/executor-register": Trigger("container-2", _line("Connecting to driver: "), _container(2, _is_java)),
    "spark/block-manager": Trigger(DRIVER, _line("Registering BlockManager BlockManagerId(driver"), _driver_jvm),
    "spark/splits": Trigger(DRIVER, _line("Created broadcast 0 from"), _driver_jvm),
    "spark/task": Trigger("container-2", _line("Got assigned task 0"), _container(2, _is_java)),
    "spark/broadcast": Trigger("container-2", _line("Started reading broadcast variable"), _container(2, _is_java)),
    "spark/function": Trigger(
        "container-2", re.compile(r"Block broadcast_\d+ stored as values"), _container(2, _is_java)
    ),
    "spark/open-input": Trigger("container-2", _line(" input split: "), _container(2, _is_java)),
    "spark/python-start": Trigger(
        "container-2", _line("Got assigned task 0"), _container(2, _is_python_daemon), STARTS_S
    ),
    "spark/stop": Trigger(DRIVER, _line("SparkContext is stopping"), _driver_jvm),
    "spark/exit": Trigger(DRIVER, _line("Successfully stopped SparkContext"), _driver_jvm),
    "hdfs/staging": Trigger(SPARK_SUBMIT, _line("Uploading resource"), _daemons("namenode")),
    "hdfs/upload": Trigger("namenode-audit", re.compile(r"cmd=create\s+src=\S*/\.sparkStaging/"), _daemons("datanode")),
    "hdfs/splits": Trigger(DRIVER, _call(r'getFileInfo "/dlobd/data/\S+/train"'), _daemons("namenode")),
    "hdfs/read": Trigger(
        "namenode-audit",
        # of a reader that is redirected; dlobd's own question where the blocks are, before the window, is an open only
        re.compile(r"cmd=getfileinfo\s+src=\S*/train/part-\S*\s.*proto=webhdfs"),
        _daemons("datanode"),
    ),
    "hdfs/write": Trigger(
        "namenode-audit", re.compile(r"cmd=create\s+src=/dlobd/runs/\S+/model/"), _daemons("datanode")
    ),
    "hdfs/event-log": Trigger(DRIVER, _line("Stopping event writer for"), _daemons("namenode")),
    "tensorflow/import": Trigger(
        "container-2", _line("Got assigned task 0"), _container(2, _maps("_op_def_library_pybind")), STARTS_S
    ),
}
"""Point to trigger, in the order of the layers."""
