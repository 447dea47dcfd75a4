"""Where a job runs, as far as `dlobd.runner` must know: what it is told, and how its evidence comes back.

Hadoop          the embedded cluster: files in HDFS, executors in YARN's containers
OnSparkWorkers  the same HDFS, executors of Spark's own Master and Workers
ThisMachine     no cluster: files in a directory, ranks as plain processes
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from dlobd import collect
from dlobd.cluster.cache import cache_dir, make_writable
from dlobd.cluster.configuration import LOOPBACK, user_name
from dlobd.cluster.embedded import EmbeddedCluster
from dlobd.errors import ClusterError
from dlobd.schedulers.base import Target
from dlobd.storage import Failures, LocalDirectory, Storage, WebHdfs
from dlobd.store import Bundle
from dlobd.submit import Window
from dlobd.workloads.job import Job


class Place(Protocol):
    """Where one run's job runs."""

    java_version: str | None
    storage: Storage
    top: str  # what every path in the storage begins with

    def target(self) -> Target | None:
        """What the scheduler must know; None where there is no cluster."""

    def job_fields(self) -> dict[str, str]:
        """Fields of Job that name the storage: fs_uri, webhdfs_url, user."""

    def prepare(self, run_dir: str) -> None:
        """Makes the directories that the job writes to, and notes what was there before it.

        Raises:
            ClusterError: the storage refused.
        """

    def abort(self, application_id: str) -> None:
        """Ends an application whose driver we ended; silent."""

    def collect(self, window: Window, job: Job, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        """Brings the evidence into the bundle; returns what could not be had, one line each, and metrics."""


class Hadoop:
    """See `Place`: an embedded cluster that runs."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.java_version: str | None = cluster.java.version
        self.storage: Storage = WebHdfs(cluster.endpoints.webhdfs_url, cluster.user)
        self.top = ""
        self.log_offsets: dict[str, int] = {}

    def target(self) -> Target:
        return target_of(self.cluster)

    def job_fields(self) -> dict[str, str]:
        endpoints = self.cluster.endpoints
        return {"fs_uri": endpoints.fs_uri, "webhdfs_url": endpoints.webhdfs_url, "user": self.cluster.user}

    def prepare(self, run_dir: str) -> None:
        try:
            for path in (f"{run_dir}/done", "/spark-events"):
                self.storage.make_directory(path)
        except Failures as error:
            raise ClusterError(f"HDFS refused a directory: {error}", "look at `dlobd cluster status`") from error
        self.log_offsets = collect.log_offsets(self.cluster)

    def abort(self, application_id: str) -> None:
        collect.kill_application(self.cluster, application_id)

    def collect(self, window: Window, job: Job, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        if not window.application_id:
            return ["no application was submitted"], {}
        failed = window.exit_code != 0
        missing = collect.collect(
            self.cluster, window.application_id, self.log_offsets, job.train_dir, job.run_dir, bundle, kill=failed
        )
        return missing, collect.memory(self.cluster, window.application_id, bundle)


class OnSparkWorkers(Hadoop):
    """See `Place`: HDFS of the embedded cluster, executors of Spark's own Master and Workers; YARN has nothing to do.

    Args:
        home: a SPARK_HOME in which Workers keep their work.
        master: the Master's address; empty where it lives in the driver.
    """

    def __init__(self, cluster: EmbeddedCluster, home: Path, master: str) -> None:
        super().__init__(cluster)
        self._home = home
        self._master = master

    def target(self) -> Target:
        return replace(target_of(self.cluster), master=self._master, spark_home=self._home)

    def abort(self, application_id: str) -> None:
        pass  # executors end with their driver

    def collect(self, window: Window, job: Job, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        if not window.application_id:
            return ["no application was submitted"], {}
        work = self._home / "work"
        missing = collect.collect_from_workers(
            self.cluster, work, window.application_id, self.log_offsets, job.train_dir, job.run_dir, bundle
        )
        for log in sorted(self._home.glob("*.log")):
            bundle.add(log, f"logs/daemons/spark-{log.name}")
        return missing, {"daemons_bytes": sum(self.cluster.memory().values())}


class ThisMachine:
    """See `Place`: a directory in the cache, and nothing that runs."""

    def __init__(self) -> None:
        """Raises SetupError if the directory cannot be written."""
        directory = native_dir()
        make_writable(directory)
        self.java_version: str | None = None
        self.storage: Storage = LocalDirectory()
        self.top = str(directory)

    def target(self) -> None:
        return None

    def job_fields(self) -> dict[str, str]:
        return {"fs_uri": "file://", "webhdfs_url": "", "user": user_name()}

    def prepare(self, run_dir: str) -> None:
        try:
            self.storage.make_directory(f"{run_dir}/done")
        except OSError as error:
            raise ClusterError(f"{run_dir} cannot be made: {error}", "look at that directory's rights") from error

    def abort(self, application_id: str) -> None:
        pass

    def collect(self, window: Window, job: Job, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        collect_markers(self.storage, job.run_dir, bundle)
        return [], {}


def native_dir() -> Path:
    """Where ThisMachine keeps data sets and what runs wrote."""
    return cache_dir() / "native"


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


def collect_markers(storage: Storage, run_dir: str, bundle: Bundle) -> None:
    """The done and failure markers of all ranks."""
    names = storage.sizes(f"{run_dir}/done")
    markers = {name: storage.read(f"{run_dir}/done/{name}", "marker").decode() for name in names}
    bundle.add_bytes(json.dumps(markers).encode(), "evidence/markers.json")
