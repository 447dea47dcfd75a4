"""Targets: the processes of a run that a fault can stop or kill."""

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from dlobd.faults.observed_run import Moment, ObservedRun
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import mentioning
from dlobd.process_id import ProcessId, identify

Targets = Callable[[ObservedRun, Moment], Sequence[ProcessId]]
"""Function that finds processes of a run at the moment of a trigger."""

Holds = Callable[[psutil.Process], bool]

SPARK_SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"


def daemons_of(cluster: EmbeddedCluster, kind: str) -> list[ProcessId]:
    """Return the running daemons of a kind, such as `datanode`, or the daemon of this name."""
    pids = [pid for name, pid in cluster.daemon_pids().items() if name.startswith(kind)]
    return [process for pid in pids if (process := identify(pid))]


def daemons(kind: str) -> Targets:
    """Return a function that finds the daemons of a kind; without a kind, the daemon that logged the trigger."""
    return lambda run, moment: daemons_of(run.cluster, kind or moment.source)


def container(number: int, holds: Holds = lambda process: True) -> Targets:
    """Return a function that finds the processes of a container that fulfil a condition.

    A group in the trigger's pattern matches the container's ID; otherwise it is the run's N-th container.
    """

    def targets(run: ObservedRun, moment: Moment) -> list[ProcessId]:
        name = moment.match[1] if moment.match and moment.match.re.groups else run.container(number)
        return [process for process in mentioning(name) if fulfils(process, holds)] if name else []

    return targets


def spark_submit(run: ObservedRun, moment: Moment) -> list[ProcessId]:
    """Return spark-submit's JVM, which is the driver's JVM in client mode."""

    def is_spark_submit(process: psutil.Process) -> bool:
        return is_java(process) and SPARK_SUBMIT_CLASS in process.cmdline()

    below = psutil.Process().children(recursive=True)
    return [process for child in below if (process := identify(child.pid)) and fulfils(process, is_spark_submit)]


def driver_jvm(run: ObservedRun, moment: Moment) -> Sequence[ProcessId]:
    """Return the driver's JVM."""
    return container(1, is_java)(run, moment) if run.cluster_mode else spark_submit(run, moment)


def driver_python(holds: Holds) -> Targets:
    """Return a function that finds the Python child of the driver's JVM, once it fulfils a condition."""

    def targets(run: ObservedRun, moment: Moment) -> list[ProcessId]:
        processes = []
        for jvm in driver_jvm(run, moment):
            try:
                children = psutil.Process(jvm.pid).children()
            except psutil.Error:
                continue
            processes += [process for child in children if (process := identify(child.pid)) and fulfils(process, holds)]
        return processes

    return targets


def fulfils(process: ProcessId, holds: Holds) -> bool:
    """Return True if a process fulfils a condition; False if it is gone."""
    try:
        return holds(psutil.Process(process.pid))
    except (psutil.Error, OSError):
        return False


def is_java(process: psutil.Process) -> bool:
    """Return True if the program is `java`."""
    return Path((process.cmdline() or [""])[0]).name == "java"


def is_python(process: psutil.Process) -> bool:
    """Return True if the program is a Python interpreter."""
    return Path((process.cmdline() or [""])[0]).name.startswith("python")


def is_python_daemon(process: psutil.Process) -> bool:
    """Return True if the process is Spark's Python daemon."""
    return is_python(process) and any(word.endswith("daemon") for word in process.cmdline())


def maps(library: str) -> Holds:
    """Return a condition for a Python process: it has loaded an extension module, at a known moment of an import."""

    def holds(process: psutil.Process) -> bool:
        return is_python(process) and library in Path(f"/proc/{process.pid}/maps").read_text()

    return holds
