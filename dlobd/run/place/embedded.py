"""Place on the embedded cluster: files in its HDFS, executors in YARN's containers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import requests

from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, SetupError, UsageError
from dlobd.hadoop import webhdfs
from dlobd.hadoop.embedded.cluster import EmbeddedCluster, LostDaemon
from dlobd.hadoop.embedded.configuration import LOOPBACK, default_settings, spark_conf_dir, work_dir_name
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import WebHdfs
from dlobd.hadoop.webhdfs import words
from dlobd.job.description import Job
from dlobd.paths import cluster_dir
from dlobd.run import orphans
from dlobd.run.collect import application, embedded, event_logs
from dlobd.run.observer import Report, prefixed
from dlobd.run.place.base import Lent, Metrics, Place
from dlobd.run.run_record import SetupTimes
from dlobd.run.schedulers.base import Target
from dlobd.run.submitted_process import Window
from dlobd.schema import Experiment, Runnable

QUEUE = "default"
"""The only queue in yarn/base/capacity-scheduler.properties."""


class EmbeddedHadoop(Place):
    """A `Place` on a running embedded cluster. `replication` applies to files written to its HDFS."""

    collects = "logs, spans, event log, ResourceManager record"

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        return experiment.scheduler == "yarn"

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target]:
        check_queue(experiment)
        return planned()

    @staticmethod
    @contextmanager
    def opened(experiment: Runnable, lent: Lent, times: SetupTimes, report: Report) -> Iterator["EmbeddedHadoop"]:
        check_queue(experiment)
        with lent_or_own(lent, times, report) as running:
            yield EmbeddedHadoop(running, experiment.replication)

    def __init__(self, cluster: EmbeddedCluster, replication: int) -> None:
        """Raise SetupError if the cluster has too few DataNodes."""
        datanodes = len(cluster.endpoints.dn_urls)
        if replication > datanodes:
            raise SetupError(
                f"replication {replication} needs {replication} DataNodes, but this cluster has {datanodes}.",
                f"--set replication={datanodes}",
            )
        self.cluster = cluster
        self.java_version = cluster.java.version
        settings = [f"{key}={value}" for key, value in sorted(cluster.own_settings.items())]
        self.own_settings = ", ".join(redact_words(settings))
        self.storage = WebHdfs(cluster.endpoints.webhdfs_url, cluster.user, replication)
        self.log_offsets: dict[str, int] = {}

    @property
    def rm_url(self) -> str | None:
        return self.cluster.endpoints.rm_url

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
            raise ClusterError(f"HDFS created no directory: {words(error)}", "check `dlobd cluster status`") from error
        self.log_offsets = embedded.log_offsets(self.cluster)

    def local_files(self, directory: str) -> list[Path]:
        endpoints = self.cluster.endpoints
        try:
            answers = [
                webhdfs.block_locations(endpoints.webhdfs_url, self.cluster.user, f"{directory}/{name}", size)
                for name, size in self.storage.sizes(directory).items()
            ]
        except (*failures(), requests.RequestException) as error:
            raise ClusterError(
                f"HDFS did not return the locations of its blocks: {words(error)}", "check `dlobd cluster status`"
            ) from error
        blocks = [block["block"]["blockId"] for answer in answers for block in answer["LocatedBlocks"]["locatedBlocks"]]
        stores = [path for path in self.cluster.work_dir.glob("datanode-*/current/BP-*/current") if path.is_dir()]
        return sorted(path for store in stores for block in blocks for path in store.rglob(f"blk_{block}"))

    def abort(self, application_id: str) -> str:
        return application.abort(self.cluster.endpoints.rm_url, application_id)

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], Metrics]:
        if not window.applications and not event_logs.has_context(bundle):
            return ["no application was submitted"], {}
        # if the driver has ended by itself, even with a failure, YARN ends the application properly
        kill = window.exit_code < 0 or bool(window.ended_by)
        missing = embedded.collect(self.cluster, window.applications, self.log_offsets, job, bundle, kill)
        return missing, {
            "daemons_bytes": sum(self.cluster.memory().values()),
            "executor_peak_bytes": application.executor_peak(
                self.cluster.endpoints.nm_urls, window.applications, bundle
            ),
        }


def target_of(cluster: EmbeddedCluster) -> Target:
    """Return the target for spark-submit on the embedded cluster."""
    return Target(
        client_conf_dir=cluster.client_conf_dir,
        spark_conf_dir=spark_conf_dir(cluster.work_dir),
        java_home=cluster.java.home,
        fs_uri=cluster.endpoints.fs_uri,
        bind_ip=LOOPBACK,
        tmp_dir=cluster.work_dir / "tmp",
    )


@contextmanager
def cluster(times: SetupTimes, report: Report) -> Iterator[EmbeddedCluster]:
    """Yield the cluster that `dlobd cluster up` left running, or start one for the context."""
    settings = default_settings()
    try:
        running = EmbeddedCluster.attach(settings.work_dir)
    except LostDaemon:
        raise
    except ClusterError:
        pass
    else:
        times.skip("cluster_up")
        report(f"prepare: using the running cluster in {settings.work_dir}")
        try:
            yield running
        finally:
            running.release()
        return
    own = EmbeddedCluster(settings)
    with times.measure("cluster_up"):
        own.start(prefixed(report, "prepare"))
    try:
        yield own
    finally:
        with times.measure("cluster_down"):
            own.stop(prefixed(report, "stop"))


@contextmanager
def lent_or_own(lent: Lent, times: SetupTimes, report: Report) -> Iterator[EmbeddedCluster]:
    """Yield the cluster of a series, or one for this run. Ends applications of killed dlobd commands on it."""
    assert lent is None or isinstance(lent, EmbeddedCluster)
    if lent:
        times.skip("cluster_up")
    with nullcontext(lent) if lent else cluster(times, report) as running:
        orphans.end_orphans(running.endpoints.rm_url, running.endpoints.nm_urls, report)
        yield running


def planned() -> tuple[str, Target]:
    """Describe the steps of `cluster`, and return its target as far as it is known."""
    work_dir = work_dir_name(cluster_dir())
    try:
        return f"use the cluster that runs in {work_dir}", target_of(EmbeddedCluster.attach(work_dir, hold=False))
    except ClusterError:
        pass  # no cluster is running
    client, tmp = work_dir / "conf" / "client", work_dir / "tmp"
    target = Target(client, spark_conf_dir(work_dir), Path("<java-home>"), "<fs-uri>", LOOPBACK, tmp)
    settings = default_settings()
    data, nodes = len(settings.datanode_hosts), len(settings.nodemanager_hosts)
    return f"start the embedded cluster: 1 NameNode, {data} DataNodes, 1 ResourceManager, {nodes} NodeManagers", target


def check_queue(experiment: Runnable) -> None:
    """Raise UsageError for a queue that the embedded cluster does not have."""
    if isinstance(experiment, Experiment) and experiment.queue not in ("", QUEUE):
        why = f"queue {experiment.queue}: the embedded cluster has only the queue {QUEUE}."
        raise UsageError(why, "omit it, or add --hadoop-conf DIR")
