"""Copies the evidence of an application on the embedded cluster from files on this machine into its bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import containers_of, end
from dlobd.job.description import Job
from dlobd.run.collect import application, hdfs


def log_offsets(cluster: EmbeddedCluster) -> dict[str, int]:
    """Return the current sizes of the daemon logs in bytes. A run's part of the logs starts there."""
    return {name: _size(path) for name, path in cluster.log_files().items()}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def collect(
    cluster: EmbeddedCluster,
    application_id: str,
    offsets: Mapping[str, int],
    job: Job | None,
    bundle: Bundle,
    kill: bool,
) -> list[str]:
    """Copy logs, spans, event log, REST record, markers and block locations into `bundle`, secrets redacted.

    Args:
        offsets: the result of `log_offsets` before the run.
        job: has the paths of input and markers; None for the user's own script.
        kill: see `await_end`.

    Returns:
        A line for each missing source.
    """
    missing: list[str] = []
    endpoints = cluster.endpoints
    record = application.await_end(endpoints.rm_url, endpoints.nm_urls, application_id, kill)
    if not record:
        missing.append(f"ResourceManager: no record of {application_id}")
    bundle.add_bytes(json.dumps(record, indent=1).encode(), files.RM_APPLICATION)
    # of a dead NodeManager, or a dead ResourceManager's application: no other process ends them
    end(containers_of(cluster.work_dir, application_id), 1)
    missing += _collect_logs(cluster, cluster.container_log_dirs(application_id), offsets, bundle)
    return missing + hdfs.from_hdfs(hdfs_of(cluster), application_id, *_directories(job), bundle)


def _directories(job: Job | None) -> tuple[str, str]:
    """Return the job's input and output directories in HDFS; empty for the user's own script."""
    return (job.train_dir, job.run_dir) if job else ("", "")


def collect_from_workers(
    cluster: EmbeddedCluster,
    work: Path,
    application_id: str,
    offsets: Mapping[str, int],
    job: Job | None,
    bundle: Bundle,
) -> list[str]:
    """Like `collect`, for an application of Spark's own Master, whose executors have directories in `work`."""
    workers = sorted(path for path in (work / application_id).glob("*") if path.is_dir())
    directories = {f"executor_{path.name}": path for path in workers}
    missing = _collect_logs(cluster, directories, offsets, bundle, EXECUTOR_FILES)
    return missing + hdfs.from_hdfs(hdfs_of(cluster), application_id, *_directories(job), bundle)


EXECUTOR_FILES = ("stdout", "stderr", "jvm.log", "spans-", "hs_err")
"""Prefixes of the files to copy from an executor's working directory, which has other files too."""


def _collect_logs(
    cluster: EmbeddedCluster,
    directories: Mapping[str, Path],
    offsets: Mapping[str, int],
    bundle: Bundle,
    names: tuple[str, ...] = ("",),
) -> list[str]:
    """Copy logs and spans of containers or executors whose names start with one of `names`, and the daemons' lines
    since `offsets`."""
    for container, directory in directories.items():
        for path in sorted(p for p in directory.iterdir() if p.is_file() and p.name.startswith(names)):
            part = "spans" if path.name.startswith("spans-") else files.CONTAINER_LOGS
            bundle.add(path, f"{part}/{container}/{path.name}")
    bundle.add_bytes(json.dumps(cluster.daemons_now(), indent=1).encode(), files.DAEMONS)
    missing = [] if directories else ["containers: no log directory"]
    for name, path in cluster.log_files().items():
        begin = offsets.get(name, 0)
        if not path.exists() and (
            begin or path.stem == name
        ):  # a daemon's log exists from the start, its audit log only after the first record
            missing.append(f"{name} log: it is gone")
            continue
        if _size(path) < begin:
            missing.append(f"{name} log: it was truncated, or another one took its place, while the job ran")
            begin = 0  # the whole file is newer
        bundle.add_bytes(_from(path, begin), f"logs/daemons/{name}.log")
    return missing


def _from(path: Path, begin: int) -> bytes:
    """Read a file from an offset; empty if there is no file."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(begin)
        return file.read()


def hdfs_of(cluster: EmbeddedCluster) -> hdfs.Hdfs:
    """Return the location of evidence in the embedded cluster's HDFS."""
    return hdfs.Hdfs(cluster.endpoints.webhdfs_url, cluster.user, "/spark-events")
