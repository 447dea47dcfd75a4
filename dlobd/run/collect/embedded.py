"""Copies the evidence of an application on the embedded cluster from files on this machine into its bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import containers_of, end
from dlobd.job.description import Job
from dlobd.paths import size_of
from dlobd.run.collect import application, hdfs


def log_offsets(cluster: EmbeddedCluster) -> dict[str, int]:
    """Return the current sizes of the daemon logs in bytes. A run's part of the logs starts there."""
    return {name: size_of(path) for name, path in cluster.log_files().items()}


EXECUTOR_FILES = ("stdout", "stderr", "jvm.log", files.SPARK_LOG, "spans-", "hs_err")
"""Prefixes of the files to copy from an executor's working directory, which has other files too."""


def collect(
    cluster: EmbeddedCluster,
    application_id: str,
    offsets: Mapping[str, int],
    job: Job | None,
    bundle: Bundle,
    kill: bool,
) -> list[str]:
    """Copy logs, spans, event log, REST record, markers and block locations into `bundle`, with secrets redacted.

    Args:
        offsets: the result of `log_offsets` before the run.
        job: the job, with the paths of input and markers; None for the user's own script.
        kill: see `await_end`.

    Returns:
        A line for each missing source.
    """
    endpoints = cluster.endpoints
    record = application.await_end(endpoints.rm_url, endpoints.nm_urls, application_id, kill)
    missing = [] if record else [f"ResourceManager: no record of {application_id}"]
    bundle.add_json(record, files.RM_APPLICATION)
    # containers of a dead NodeManager, or of a dead ResourceManager's application: no other process ends them
    end(containers_of(cluster.work_dir, application_id), 1)
    missing += copy_logs(cluster, cluster.container_log_dirs(application_id), offsets, bundle)
    return missing + from_hdfs(cluster, application_id, job, bundle)


def from_hdfs(cluster: EmbeddedCluster, application_id: str, job: Job | None, bundle: Bundle) -> list[str]:
    """Copy the evidence in the embedded cluster's HDFS; return a line for each missing source."""
    place = hdfs.Hdfs(cluster.endpoints.webhdfs_url, cluster.user, "/spark-events")
    directories = (job.train_dir, job.run_dir) if job else ("", "")
    return hdfs.from_hdfs(place, application_id, *directories, bundle)


def copy_logs(
    cluster: EmbeddedCluster,
    directories: Mapping[str, Path],
    offsets: Mapping[str, int],
    bundle: Bundle,
    prefixes: tuple[str, ...] = ("",),
) -> list[str]:
    """Copy logs and spans of containers or executors, and the daemons' lines since `offsets`.

    Args:
        prefixes: the beginnings of the names of files to copy.

    Returns:
        A line for each missing source.
    """
    for container, directory in directories.items():
        for path in sorted(p for p in directory.iterdir() if p.is_file() and p.name.startswith(prefixes)):
            part = "spans" if path.name.startswith("spans-") else files.CONTAINER_LOGS
            bundle.add(path, f"{part}/{container}/{path.name}")
    bundle.add_json(cluster.daemons_now(), files.DAEMONS)
    missing = [] if directories else ["containers: no log directory"]
    for name, path in cluster.log_files().items():
        begin = offsets.get(name, 0)
        # a daemon's log exists from the start, its audit log only after the first record
        if not path.exists() and (begin or path.stem == name):
            missing.append(f"{name} log: the file is missing")
            continue
        if size_of(path) < begin:
            missing.append(f"{name} log: it was truncated or replaced while the job ran")
            begin = 0  # the file was replaced, so all of it is newer
        bundle.add_bytes(path.read_bytes()[begin:] if path.exists() else b"", f"logs/daemons/{name}.log")
    return missing
