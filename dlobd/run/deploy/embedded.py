"""On the embedded cluster: files in its HDFS, executors in YARN's containers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import requests

from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, SetupError
from dlobd.hadoop import webhdfs
from dlobd.hadoop.embedded import own_settings
from dlobd.hadoop.embedded.cluster import EmbeddedCluster, LostDaemon
from dlobd.hadoop.embedded.configuration import (
    LOOPBACK,
    ClusterSettings,
    default_settings,
    spark_conf_dir,
    work_dir_name,
)
from dlobd.hadoop.embedded.jars import HADOOP_VERSION
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import Storage, WebHdfs
from dlobd.hadoop.webhdfs import words
from dlobd.job.description import Job
from dlobd.paths import cluster_dir
from dlobd.run import submissions
from dlobd.run.collect import application, embedded
from dlobd.run.deploy.base import Lent, Progress
from dlobd.run.machine_noise import ALL
from dlobd.run.schedulers.base import Target
from dlobd.run.submit import Window
from dlobd.schema import Runnable
from dlobd.tracing.clock import timed


class Hadoop:
    """See `Place`: an embedded cluster that runs.

    Args:
        replication: of what is written to its HDFS.
    """

    def __init__(self, cluster: EmbeddedCluster, replication: int) -> None:
        """Raises SetupError if the cluster has too few DataNodes."""
        datanodes = len(cluster.endpoints.dn_urls)
        if replication > datanodes:
            raise SetupError(
                f"replication {replication} needs that many DataNodes; this cluster has {datanodes}.",
                f"--set replication={datanodes}",
            )
        self.cluster = cluster
        self.java_version: str | None = cluster.java.version
        self.hadoop_version: str | None = HADOOP_VERSION
        self.own_settings = ", ".join(redact_words(own_settings.words(cluster.own_settings)))
        self.storage: Storage = WebHdfs(cluster.endpoints.webhdfs_url, cluster.user, replication)
        self.top = ""
        self.machine = ALL
        self.log_offsets: dict[str, int] = {}

    @property
    def rm_url(self) -> str | None:
        return self.cluster.rm_url

    def daemon_pids(self) -> dict[str, int]:
        return self.cluster.daemon_pids()

    def target(self) -> Target:
        return target_of(self.cluster)

    def job_fields(self) -> dict[str, str]:
        endpoints = self.cluster.endpoints
        return {"fs_uri": endpoints.fs_uri, "webhdfs_url": endpoints.webhdfs_url, "user": self.cluster.user}

    def prepare(self, run_dir: str) -> None:
        try:
            for path in (*([f"{run_dir}/done"] if run_dir else []), "/spark-events"):
                self.storage.make_directory(path)
        except failures() as error:
            raise ClusterError(
                f"HDFS refused to create a directory: {words(error)}", "check `dlobd cluster status`"
            ) from error
        self.log_offsets = embedded.log_offsets(self.cluster)

    def local_files(self, directory: str) -> list[Path]:
        endpoints = self.cluster.endpoints
        try:
            answers = [
                webhdfs.block_locations(endpoints.webhdfs_url, self.cluster.user, f"{directory}/{name}", size)
                for name, size in self.storage.sizes(directory).items()
            ]
        except (*failures(), requests.RequestException, ValueError) as error:
            raise ClusterError(
                f"HDFS does not say where its blocks are: {words(error)}", "check `dlobd cluster status`"
            ) from error
        blocks = [block["block"]["blockId"] for answer in answers for block in answer["LocatedBlocks"]["locatedBlocks"]]
        stores = [path for path in self.cluster.work_dir.glob("datanode-*/current/BP-*/current") if path.is_dir()]
        return sorted(path for store in stores for block in blocks for path in store.rglob(f"blk_{block}"))

    def abort(self, application_id: str) -> str:
        rm_url = self.cluster.endpoints.rm_url
        diagnostics = application.diagnostics(rm_url, application_id)
        application.kill_application(rm_url, application_id)
        return diagnostics

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        if not window.application_id:
            return ["no application was submitted"], {}
        # a driver that ended by itself, however badly, lets YARN end the application in order
        kill = window.exit_code < 0 or bool(window.ended_by)
        missing = embedded.collect(self.cluster, window.application_id, self.log_offsets, job, bundle, kill)
        return missing, {
            "daemons_bytes": sum(self.cluster.memory().values()),
            "executor_peak_bytes": application.executor_peak(
                self.cluster.endpoints.nm_urls, window.application_id, bundle
            ),
        }


def target_of(cluster: EmbeddedCluster) -> Target:
    """The cluster as spark-submit sees it."""
    return Target(
        client_conf_dir=cluster.client_conf_dir,
        spark_conf_dir=cluster.spark_conf_dir,
        java_home=cluster.java.home,
        fs_uri=cluster.endpoints.fs_uri,
        bind_ip=LOOPBACK,
        tmp_dir=cluster.work_dir / "tmp",
    )


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
        progress(f"prepare: using the running cluster in {settings.work_dir}")
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
def lent_or_own(
    lent: Lent, settings: ClusterSettings, setup: dict[str, int | None], progress: Progress
) -> Iterator[EmbeddedCluster]:
    """The cluster of a series, as it is, or one for this run; what a killed dlobd left running on it is ended."""
    if lent is None:
        with cluster(settings, setup, progress) as found:
            submissions.end_orphans(found.rm_url, found.endpoints.nm_urls, progress)
            yield found
        return
    setup["cluster_up_ns"] = None
    submissions.end_orphans(lent.rm_url, lent.endpoints.nm_urls, progress)
    yield lent


def planned() -> tuple[str, Target]:
    """What `cluster` would do, in words, and its target as far as it is known before."""
    work_dir = work_dir_name(cluster_dir())
    try:
        return f"use the cluster that runs in {work_dir}", target_of(EmbeddedCluster.attach(work_dir, hold=False))
    except ClusterError:
        pass  # none runs: it would be started
    client, tmp = work_dir / "conf" / "client", work_dir / "tmp"
    target = Target(client, spark_conf_dir(work_dir), Path("<java-home>"), "<fs-uri>", LOOPBACK, tmp)
    settings = default_settings()
    data, nodes = len(settings.datanode_hosts), len(settings.nodemanager_hosts)
    return f"start the embedded cluster: 1 NameNode, {data} DataNodes, 1 ResourceManager, {nodes} NodeManagers", target


class EmbeddedKind:
    """See `dlobd.run.deploy.base.PlaceKind`: YARN of the embedded cluster."""

    evidence: ClassVar[str] = "logs, spans, event log, ResourceManager record"
    here: ClassVar[bool] = True

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        """Whatever wants YARN, and no other cluster was named."""
        return experiment.scheduler == "yarn"

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target]:
        """The cluster that stays, or a new one."""
        return planned()

    @staticmethod
    @contextmanager
    def opened(
        experiment: Runnable, settings: ClusterSettings, lent: Lent, setup: dict[str, int | None], progress: Progress
    ) -> Iterator[Hadoop]:
        """See `lent_or_own`."""
        with lent_or_own(lent, settings, setup, progress) as found:
            yield Hadoop(found, experiment.replication)
