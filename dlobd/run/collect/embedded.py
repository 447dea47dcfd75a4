"""Copies the evidence of an application on the embedded cluster from files on this machine into its bundle."""

from collections.abc import Mapping, Sequence

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import containers_of, end
from dlobd.job.description import Job
from dlobd.paths import size_of, spark_home
from dlobd.run.collect import application, hdfs, workers


def log_offsets(cluster: EmbeddedCluster) -> dict[str, int]:
    """Return the current sizes of the daemon logs in bytes. A run's part of the logs starts there."""
    return {name: size_of(path) for name, path in cluster.log_files().items()}


def collect(
    cluster: EmbeddedCluster,
    applications: Sequence[str],
    offsets: Mapping[str, int],
    job: Job | None,
    bundle: Bundle,
    kill: bool,
) -> list[str]:
    """Copy logs, spans, event log, REST record, markers and block locations; return a line for each missing source.

    `offsets` is the result of `log_offsets` before the run; for `kill` see `await_end`.
    """
    endpoints = cluster.endpoints
    missing = []
    for number, application_id in application.on_yarn(applications):
        record = application.await_end(endpoints.rm_url, endpoints.nm_urls, application_id, kill)
        missing += [] if record else [f"ResourceManager: no record of {application_id}"]
        bundle.add_json(record, files.of_application(files.RM_APPLICATION, number))
        # containers of a dead NodeManager, or of a dead ResourceManager's application: no other process ends them
        end(containers_of(cluster.work_dir, application_id), 1)
        directories = cluster.container_log_dirs(application_id)
        missing += [] if directories else [f"containers of {application_id}: no log directory"]
        for container, directory in directories.items():
            workers.copy_files(directory, container, bundle)
    missing += workers.copy_logs(spark_home(), applications, bundle)  # of a script's own master
    return missing + from_daemons(cluster, applications, offsets, job, bundle)


def from_daemons(
    cluster: EmbeddedCluster, applications: Sequence[str], offsets: Mapping[str, int], job: Job | None, bundle: Bundle
) -> list[str]:
    """Copy the daemons' lines since `offsets`, and the evidence in HDFS; return a line for each missing source."""
    bundle.add_json(cluster.daemons_now(), files.DAEMONS)
    missing: list[str] = []
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
    directories = (job.train_dir, job.run_dir) if job else ("", "")
    url = cluster.endpoints.webhdfs_url
    return missing + hdfs.from_hdfs(url, cluster.user, "/spark-events", applications, *directories, bundle)
