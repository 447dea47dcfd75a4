"""Spark without YARN: HDFS of the embedded cluster, executors of Spark's own Master and Workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings, work_dir_name
from dlobd.job.description import Job
from dlobd.paths import cluster_dir, spark_home
from dlobd.run.collect import embedded
from dlobd.run.deploy import embedded as hadoop
from dlobd.run.deploy.base import Lent, Progress
from dlobd.run.deploy.embedded import Hadoop, lent_or_own, target_of
from dlobd.run.deploy.spark_workers import SparkWorkers, links_home, spark_home_in
from dlobd.run.preflight.capacity import cores_of, gpus_of
from dlobd.run.schedulers.base import Target
from dlobd.run.schedulers.spark_submit import environment
from dlobd.run.submit import Window
from dlobd.schema import Runnable
from dlobd.tracing.clock import timed


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


class SparkWorkersKind:
    """See `dlobd.run.deploy.base.PlaceKind`: schedulers `standalone` and `local-cluster`."""

    evidence: ClassVar[str] = "logs, spans, event log"
    here: ClassVar[bool] = True

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        """What Spark schedules itself."""
        return experiment.scheduler in ("standalone", "local-cluster")

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target]:
        """The embedded cluster for its HDFS, and Spark's daemons unless they live in the driver's JVM."""
        words, target = hadoop.planned()
        if experiment.scheduler == "standalone":
            words += ", and Spark's own Master and Workers"
        home = spark_home_in(work_dir_name(cluster_dir()))
        return words, replace(target, master="<spark-master>", spark_home=home)

    @staticmethod
    @contextmanager
    def opened(
        experiment: Runnable, settings: ClusterSettings, lent: Lent, setup: dict[str, int | None], progress: Progress
    ) -> Iterator[OnSparkWorkers]:
        """Master and Workers live as long as the context."""
        with lent_or_own(lent, settings, setup, progress) as cluster:
            home = links_home(spark_home(), cluster.work_dir)
            if experiment.scheduler == "local-cluster":
                yield OnSparkWorkers(cluster, experiment.replication, home, "")
                return
            variables = environment(target_of(cluster))
            workers = SparkWorkers(
                home,
                cluster.work_dir,
                variables,
                experiment.workers,
                experiment.executor_memory_mb,
                cores_of(experiment),
                gpus_of(experiment),
            )
            with timed(setup, "spark_up_ns"):
                master = workers.start(lambda message: progress(f"prepare: {message}"))
            try:
                yield OnSparkWorkers(cluster, experiment.replication, home, master)
            finally:
                with timed(setup, "spark_down_ns"):
                    workers.stop()
