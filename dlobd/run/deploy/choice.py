"""Which place an experiment needs, started if need be and stopped again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dlobd.errors import ClusterError
from dlobd.hadoop.embedded.cluster import EmbeddedCluster, LostDaemon
from dlobd.hadoop.embedded.configuration import (
    LOOPBACK,
    ClusterSettings,
    default_settings,
    spark_conf_dir,
    work_dir_name,
)
from dlobd.paths import cluster_dir, spark_home
from dlobd.run import submissions
from dlobd.run.deploy.base import Place
from dlobd.run.deploy.embedded import Hadoop, OnSparkWorkers, target_of
from dlobd.run.deploy.external import Elsewhere, RemoteHadoop, check, planned_target
from dlobd.run.deploy.spark_workers import SparkWorkers, links_home, spark_home_in
from dlobd.run.deploy.this_machine import ThisMachine
from dlobd.run.schedulers.base import Target
from dlobd.run.schedulers.spark_submit import environment
from dlobd.schema import Runnable
from dlobd.tracing.clock import timed

Progress = Callable[[str], None]

Where = EmbeddedCluster | Elsewhere | RemoteHadoop | None
"""The cluster of a series of runs, an external one, or none: then what is needed is started for the run."""


@contextmanager
def opened(
    experiment: Runnable,
    settings: ClusterSettings,
    where: Where,
    setup: dict[str, int | None],
    progress: Progress,
) -> Iterator[Place]:
    """Where the job runs; what had to be started for it is stopped at the end.

    Args:
        where: a cluster that runs; it stays as it is.
        setup: gets how long that took, in nanoseconds; None for a cluster that ran already.
    """
    if isinstance(where, Elsewhere | RemoteHadoop):
        check(experiment)
        yield where if isinstance(where, RemoteHadoop) else external(where, setup, progress)
        return
    if not needs_cluster(experiment):
        yield ThisMachine()
        return
    with _lent(where, setup) if where else cluster(settings, setup, progress) as hadoop:
        submissions.end_orphans(hadoop.rm_url, hadoop.endpoints.nm_urls, progress)
        if experiment.scheduler == "yarn":
            yield Hadoop(hadoop, experiment.replication)
            return
        home = links_home(spark_home(), hadoop.work_dir)
        if experiment.scheduler == "local-cluster":
            yield OnSparkWorkers(hadoop, experiment.replication, home, "")
            return
        variables = environment(target_of(hadoop))
        workers = SparkWorkers(home, hadoop.work_dir, variables, experiment.workers, experiment.executor_memory_mb)
        with timed(setup, "spark_up_ns"):
            master = workers.start(lambda message: progress(f"prepare: {message}"))
        try:
            yield OnSparkWorkers(hadoop, experiment.replication, home, master)
        finally:
            with timed(setup, "spark_down_ns"):
                workers.stop()


def external(elsewhere: Elsewhere, setup: dict[str, int | None], progress: Progress) -> RemoteHadoop:
    """An external cluster that has answered and has what its nodes need."""
    remote = RemoteHadoop.open(elsewhere, lambda message: progress(f"prepare: {message}"))
    submissions.end_orphans(remote.rm_url, remote.web.node_urls(), progress)
    with timed(setup, "upload_ns"):
        remote.upload()
    return remote


def needs_cluster(experiment: Runnable) -> bool:
    """Whether HDFS, at least, has to run."""
    return experiment.scheduler != "none"


@contextmanager
def cluster(settings: ClusterSettings, setup: dict[str, int | None], progress: Progress) -> Iterator[EmbeddedCluster]:
    """The cluster that `dlobd cluster up` left running, or one for as long as the context lasts."""
    try:
        found = EmbeddedCluster.attach(settings.work_dir)
    except LostDaemon:
        raise
    except ClusterError:
        found = EmbeddedCluster(settings)
    else:
        setup["cluster_up_ns"] = None
        progress(f"prepare: uses the cluster that runs in {settings.work_dir}")
        try:
            yield found
        finally:
            found.release()
        return
    with timed(setup, "cluster_up_ns"):
        found.start(lambda message: progress(f"prepare: {message}"))
    try:
        yield found
    finally:
        with timed(setup, "cluster_down_ns"):
            found.stop(lambda message: progress(f"stop: {message}"))


@contextmanager
def _lent(running: EmbeddedCluster, setup: dict[str, int | None]) -> Iterator[EmbeddedCluster]:
    setup["cluster_up_ns"] = None
    yield running


def planned(experiment: Runnable, where: Where = None) -> tuple[str, Target | None]:
    """What `opened` would do, in words, and the place as far as it is known before it is opened."""
    if isinstance(where, Elsewhere):
        check(experiment)
        there = where.read()
        return f"environment and Spark's jars into HDFS of {there.directory}, once", planned_target(there)
    if experiment.scheduler == "none":
        return "nothing runs beside the job's own processes", None
    work_dir = work_dir_name(cluster_dir())
    try:
        target = target_of(EmbeddedCluster.attach(work_dir, hold=False))
        words = f"use the cluster that runs in {work_dir}"
    except ClusterError:
        conf = work_dir / "conf"
        target = Target(
            conf / "client", spark_conf_dir(work_dir), Path("<java-home>"), "<fs-uri>", LOOPBACK, work_dir / "tmp"
        )
        settings = default_settings()
        data, nodes = len(settings.datanode_hosts), len(settings.nodemanager_hosts)
        words = f"start the embedded cluster: 1 NameNode, {data} DataNodes, 1 ResourceManager, {nodes} NodeManagers"
    if experiment.scheduler == "yarn":
        return words, target
    if experiment.scheduler == "standalone":
        words += ", and Spark's own Master and Workers"
    return words, replace(target, master="<spark-master>", spark_home=spark_home_in(work_dir))


def evidence_of(experiment: Runnable) -> str:
    """What such a run leaves to be collected, in words."""
    if experiment.scheduler == "none":
        return "logs, spans, markers"
    return "logs, spans, event log" + ", ResourceManager record" * (experiment.scheduler == "yarn")
