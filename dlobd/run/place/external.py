"""Place on an external YARN cluster, named by its HADOOP_CONF_DIR. A job brings everything that it needs.

All files of dlobd are in the user's home directory in HDFS:

    dlobd/cache/         Python environments and Spark's jars, named by their content: uploaded once
    dlobd/data/          data sets, as on the embedded cluster
    dlobd/runs/RUN/      output and description of a run
    dlobd/spark-events/  event logs
"""

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, UsageError
from dlobd.hadoop import spark_logging, webhdfs
from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.embedded.java import find_java
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import WebHdfs
from dlobd.hadoop.site_files import HadoopConf
from dlobd.hadoop.web import HadoopWeb
from dlobd.job.description import Job
from dlobd.network.verdict.evidence import Snapshot
from dlobd.paths import cache_dir, make_writable, plain, resolved_plain, spark_home
from dlobd.run import orphans, packing
from dlobd.run.collect import application, event_logs, workers
from dlobd.run.collect import external as evidence
from dlobd.run.machine_noise import CLIENT
from dlobd.run.observer import Report, prefixed
from dlobd.run.place.base import Lent, Metrics, Place
from dlobd.run.preflight.cluster import check_capacity, check_nodes, nodes_have_dlobd
from dlobd.run.run_record import SetupTimes
from dlobd.run.schedulers.base import PACKAGES, PackedInstallation, Target
from dlobd.run.submitted_process import Window
from dlobd.schema import Experiment, Runnable

REPORT_S = 2.0
"""Interval between two reports of an upload's progress."""

SLACK_MS = 2000
"""Margin of the window for HDFS, which logs lines of an application before its submission (staging) and after its end
(the last renames)."""


@dataclass(frozen=True, slots=True)
class ExternalCluster:
    """External cluster as named on the command line."""

    conf_dir: Path
    archive: Path | None = None
    python: str = ""  # the user's interpreter at its path on each node

    def read(self) -> HadoopConf:
        """Read its configuration, without a request to the cluster.
        Raises UsageError if the configuration or the archive cannot be used."""
        conf = HadoopConf.read(self.conf_dir)
        conf.check_supported()
        if self.archive:
            packing.check_archive(self.archive)
        return conf


def check(experiment: Runnable) -> None:
    """Raise UsageError if the experiment cannot run on the cluster: it has another scheduler, or a cold page cache."""
    if experiment.scheduler != "yarn":
        raise UsageError(
            f"--hadoop-conf needs scheduler = yarn, but {experiment.name} has {experiment.scheduler}.",
            "omit --hadoop-conf (or unset DLOBD_HADOOP_CONF), or add --set scheduler=yarn",
        )
    if isinstance(experiment, Experiment) and experiment.page_cache == "cold":
        raise UsageError(
            "page_cache cold needs the embedded cluster: HDFS cannot drop the page cache of another machine.",
            "--set page_cache=as-is, or warm",
        )


class ExternalHadoop(Place):
    """A `Place` on an external cluster that has answered. `archive` is the user's own packed environment, `python` the
    user's interpreter on the nodes."""

    collects = "logs, spans, event log, ResourceManager record"
    here = False

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        # `planned` and `opened` refuse an experiment that cannot run on the cluster
        return isinstance(lent, ExternalCluster | ExternalHadoop)

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target]:
        check(experiment)
        assert isinstance(lent, ExternalCluster)
        conf = lent.read()
        target = planned_target(conf, lent.archive, lent.python)
        if target.packed is None:
            return f"use dlobd on the nodes of {conf.directory}", target
        what = "Spark's jars" if lent.python else "environment and Spark's jars"
        return f"upload {what} to HDFS of {conf.directory}, once", target

    @staticmethod
    @contextmanager
    def opened(experiment: Runnable, lent: Lent, times: SetupTimes, report: Report) -> Iterator["ExternalHadoop"]:
        check(experiment)
        assert isinstance(lent, ExternalCluster | ExternalHadoop)
        place = ExternalHadoop.open(lent, prefixed(report, "prepare")) if isinstance(lent, ExternalCluster) else lent
        if note := check_capacity(experiment, place.web):
            report(f"prepare: {note}")
        if place is not lent:  # the cluster of a series has all uploads
            place.supply(times)
        yield place.with_replication(experiment.replication)

    def __init__(self, web: HadoopWeb, archive: Path | None, report: Report, python: str = "") -> None:
        """Raise SetupError if there is no Java 17 for spark-submit."""
        java = find_java()
        self.web = web
        self.java_version = java.version
        self.hadoop_version = web.hadoop_version
        self.storage = WebHdfs(web.webhdfs_url, web.user)
        self.top = web.home.rstrip("/")
        self.machine = CLIENT
        self._java = java
        self._archive = archive
        self._python = python
        self._report = report
        self._packed: PackedInstallation | None = None

    @classmethod
    def open(cls, cluster: ExternalCluster, report: Report) -> Self:
        """Connect to the cluster. Raises the errors of `HadoopWeb.connect`."""
        conf = cluster.read()
        report(f"connecting to the cluster of {conf.directory}")
        return cls(HadoopWeb.connect(conf, user_name()), cluster.archive, report, cluster.python)

    def with_replication(self, replication: int) -> Self:
        """Return the same cluster for one run, with a replication of its files in HDFS."""
        place = copy(self)
        place.storage = WebHdfs(self.web.webhdfs_url, self.web.user, replication)
        return place

    @property
    def rm_url(self) -> str:
        return self.web.rm_url

    @property
    def events_dir(self) -> str:
        """spark.eventLog.dir in HDFS."""
        return f"{self.top}/dlobd/spark-events"

    def supply(self, times: SetupTimes) -> None:
        """End orphaned applications of killed dlobd commands, and upload environment and jars if needed. Raises
        UsageError if the nodes have another dlobd, SetupError if the environment cannot be packed, ClusterError if HDFS
        refused or no NodeManager runs."""
        orphans.end_orphans(self.rm_url, self.web.node_urls(), self._report)
        with times.measure("upload"):
            self.upload()

    def upload(self) -> None:
        """Upload environment and jars unless the nodes have them. Raises the errors of `supply`."""
        if not self.web.node_urls():
            raise ClusterError(f"No NodeManager runs according to {self.web.rm_url}.", "see its /cluster/nodes page")
        if not _uploads(self.web.conf, self._archive, self._python):
            check_nodes(self.web)
            return
        self._packed = self._uploaded()

    def _uploaded(self) -> PackedInstallation:
        """Return the installation that nodes use; write it to HDFS if necessary."""
        what, environment = "the Python environment", ""
        if self._python:
            pass  # the nodes have it
        elif self._archive:
            size_bytes = self._archive.stat().st_size
            name = packing.archive_name(self._archive)
            pieces = self._counted(what, size_bytes, _pieces(self._archive))
            environment = self._cached(what, name, size_bytes, pieces)
        else:
            environment = self._cached_tarball(what, packing.environment())
        libs = self._cached_tarball("Spark's jars", packing.spark_libs(spark_home() / "jars"))
        uri = self.web.conf.fs_uri
        return PackedInstallation(
            environment=f"{uri}{environment}#{packing.ENVIRONMENT}" if environment else "",
            python=self._python or f"./{packing.ENVIRONMENT}/bin/python",
            spark_libs=f"{uri}{libs}",
            package=plain(packing.package()),
        )

    def _cached_tarball(self, what: str, tarball: packing.Tarball) -> str:
        pieces = self._counted(what, tarball.size_bytes, tarball.chunks())
        if tarball.name.endswith(".gz"):
            what, pieces = f"{what}, compressed during the upload", packing.compressed(pieces)
        return self._cached(what, tarball.name, tarball.size_bytes, pieces)

    def _cached(self, what: str, name: str, size_bytes: int, pieces: Iterator[bytes]) -> str:
        """Return the path of a file in HDFS, after writing `pieces` to it unless it exists."""
        path = f"{self.top}/dlobd/cache/{name}"
        part = f"{path}.{socket.gethostname()}-{time.time_ns()}.part"
        client = webhdfs.Client(self.web.webhdfs_url, self.web.user, timed=False)
        try:
            if not self.storage.exists(path):
                self._report(f"uploading {what}, {size_bytes / 1e6:.0f} MB, once: {self.web.conf.fs_uri}{path}")
                client.write(part, data=pieces)
                try:
                    client.rename(part, path)
                except webhdfs.HdfsError:
                    if not self.storage.exists(path):  # otherwise another command was faster
                        raise
        except failures() as error:
            remedy = "check its free space and quota, and your permissions there"
            raise ClusterError(f"HDFS refused {path}: {' '.join(str(error).split())[:200]}", remedy) from error
        finally:
            try:
                client.delete(part)
            except failures():
                pass  # the file is gone already, or HDFS does not answer
        return path

    def _counted(self, what: str, size_bytes: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        done, reported_s = 0, time.monotonic()
        for piece in pieces:
            if time.monotonic() - reported_s > REPORT_S:
                reported_s = time.monotonic()
                self._report(f"uploading {what}: {done / 1e6:.0f} of {size_bytes / 1e6:.0f} MB")
            done += len(piece)
            yield piece

    def target(self) -> Target:
        target = planned_target(self.web.conf, self._archive, self._python)
        if target.packed and self._packed is None:
            raise ValueError("nothing has been uploaded")
        make_writable(target.tmp_dir)
        spark_logging.write(target.spark_conf_dir)
        return replace(
            target,
            client_conf_dir=plain(target.client_conf_dir),
            java_home=self._java.home,
            bind_ip=_own_address(self.web.rm_url),
            events_dir=self.events_dir,
            packed=self._packed,
        )

    def send(self, packages: Path) -> str:
        tarball = packing.packages(packages)
        sent = self._cached_tarball("the job's packages", tarball)
        return f"{self.web.conf.fs_uri}{sent}#{PACKAGES}"

    def job_fields(self) -> dict[str, str]:
        web = self.web
        return {"fs_uri": web.conf.fs_uri, "webhdfs_url": web.webhdfs_url, "user": web.user}

    def prepare(self, run_dir: str) -> None:
        try:
            for path in (*([f"{run_dir}/done"] if run_dir else []), self.events_dir):
                self.storage.make_directory(path)
        except failures() as error:
            raise ClusterError(f"HDFS created no directory: {error}", f"check permissions in {self.top}") from error

    def abort(self, application_id: str) -> str:
        return application.abort(self.rm_url, application_id)

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], Metrics]:
        bundle.add_json(Snapshot.read(), files.CLIENT_INTERFACES)
        if not window.applications and not event_logs.has_context(bundle):
            return ["no application was submitted"], {}
        anchor = window.anchors[0]
        offset_ns = anchor.wall_ns - anchor.monotonic_ns
        begin_ms, end_ms = ((at_ns + offset_ns) // 1_000_000 for at_ns in (window.exec_ns, window.exit_ns))
        nodes = self.web.node_urls()
        for _, one in application.on_yarn(window.applications):
            application.await_end(self.web.rm_url, nodes, one, kill=window.exit_code < 0 or bool(window.ended_by))
        asked = evidence.LogQuery(window.applications, begin_ms, end_ms + SLACK_MS, self.web.user, self.top)
        missing = workers.copy_logs(spark_home(), window.applications, bundle)  # of a script's own master
        missing += self.gather(asked, job.train_dir if job else "", job.run_dir if job else "", bundle)
        return missing, {"executor_peak_bytes": application.executor_peak(nodes, window.applications, bundle)}

    def gather(self, asked: evidence.LogQuery, train_dir: str, run_dir: str, bundle: Bundle) -> list[str]:
        """Copy all evidence of an ended application that the cluster still has."""
        return evidence.gather(self.web, self._java.command, asked, self.events_dir, train_dir, run_dir, bundle)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(packing.PIECE_BYTES):
            yield piece


def _uploads(conf: HadoopConf, archive: Path | None, python: str) -> bool:
    """Return True if nodes get dlobd through HDFS."""
    return archive is not None or bool(python) or not nodes_have_dlobd(conf)


def planned_target(conf: HadoopConf, archive: Path | None, python: str) -> Target:
    """Return the target for spark-submit. Facts that need a request to the cluster are in angle brackets."""
    home, name = "<hdfs-home>/dlobd", packing.ENVIRONMENT
    return Target(
        client_conf_dir=conf.directory,
        spark_conf_dir=resolved_plain(_work_dir() / "spark-conf"),
        java_home=Path("<java-home>"),
        fs_uri=conf.fs_uri,
        bind_ip="<this-host>",
        tmp_dir=_work_dir() / "tmp",
        events_dir=f"{home}/spark-events",
        packed=PackedInstallation(
            environment="" if python else f"{conf.fs_uri}{home}/cache/<environment>#{name}",
            python=python or f"./{name}/bin/python",
            spark_libs=f"{conf.fs_uri}{home}/cache/<spark-libs>",
            package=Path("<package>"),
        )
        if _uploads(conf, archive, python)
        else None,
    )


def _work_dir() -> Path:
    return plain(cache_dir() / "remote")


def _own_address(url: str) -> str:
    """Return the local address of a connection to the cluster, by which its nodes can reach this machine."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=5) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise ClusterError(f"YARN stopped answering at {parts.netloc}: {error}.", "try again") from error
