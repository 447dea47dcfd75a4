"""On the embedded cluster: files in its HDFS, executors in YARN's containers or below Spark's own Master."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, SetupError
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import LOOPBACK
from dlobd.hadoop.embedded.jars import HADOOP_VERSION
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import Storage, WebHdfs
from dlobd.hadoop.webhdfs import words
from dlobd.job.description import Job
from dlobd.run.collect import application, embedded
from dlobd.run.machine_noise import ALL
from dlobd.run.schedulers.base import Target
from dlobd.run.submit import Window


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
                f"replication {replication} needs as many DataNodes; this cluster has {datanodes}.",
                f"--set replication={datanodes}",
            )
        self.cluster = cluster
        self.java_version: str | None = cluster.java.version
        self.hadoop_version: str | None = HADOOP_VERSION
        self.storage: Storage = WebHdfs(cluster.endpoints.webhdfs_url, cluster.user, replication)
        self.top = ""
        self.machine = ALL
        self.log_offsets: dict[str, int] = {}

    @property
    def rm_url(self) -> str | None:
        return self.cluster.rm_url

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
            raise ClusterError(f"HDFS refused a directory: {words(error)}", "look at `dlobd cluster status`") from error
        self.log_offsets = embedded.log_offsets(self.cluster)

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


class OnSparkWorkers(Hadoop):
    """See `Place`: HDFS of the embedded cluster, executors of Spark's own Master and Workers; YARN has nothing to do.

    Args:
        home: a SPARK_HOME in which Workers keep their work.
        master: the Master's address; empty where it lives in the driver.
    """

    def __init__(self, cluster: EmbeddedCluster, replication: int, home: Path, master: str) -> None:
        super().__init__(cluster, replication)
        self._home = home
        self._master = master

    @property
    def rm_url(self) -> None:
        return None  # executors end with their driver, and that with us

    def target(self) -> Target:
        return replace(target_of(self.cluster), master=self._master, spark_home=self._home)

    def abort(self, application_id: str) -> str:
        return ""  # executors end with their driver

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        if not window.application_id:
            return ["no application was submitted"], {}
        work = self._home / "work"
        missing = embedded.collect_from_workers(
            self.cluster, work, window.application_id, self.log_offsets, job, bundle
        )
        for log in sorted(self._home.glob("*.log")):
            bundle.add(log, f"logs/daemons/spark-{log.name}")
        return missing, {"daemons_bytes": sum(self.cluster.memory().values())}


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
