"""Brings the evidence of one application into its bundle, while the cluster still has it.

Everything after this step works on the bundle alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from dlobd import webhdfs
from dlobd.cluster.configuration import user_name
from dlobd.cluster.embedded import EmbeddedCluster
from dlobd.cluster.processes import containers_of, end
from dlobd.hdfs_checksum import ALGORITHM
from dlobd.store import Bundle
from dlobd.workloads.job import STAGED, Job

END_DEADLINE_S = 20.0
"""How long the containers of an ended application may take to leave."""

ENDED = ("FINISHED", "FAILED", "KILLED")
"""States of an application that do not change any more."""


def log_offsets(cluster: EmbeddedCluster) -> dict[str, int]:
    """Where each daemon log ends now, in bytes: a run's slice begins there."""
    return {name: path.stat().st_size for name, path in cluster.log_files().items()}


def kill_application(rm_url: str, application_id: str) -> None:
    """Asks the ResourceManager to kill an application; silent if it cannot be asked, since we are on our way out."""
    try:
        url = f"{rm_url}/ws/v1/cluster/apps/{application_id}/state?user.name={user_name()}"
        requests.put(url, json={"state": "KILLED"}, timeout=3)
    except requests.RequestException:
        pass


def diagnostics(rm_url: str, application_id: str) -> str:
    """What the ResourceManager says of an application now; empty if it says nothing, or cannot be asked."""
    try:
        answer = requests.get(f"{rm_url}/ws/v1/cluster/apps/{application_id}", timeout=3)
        return str(answer.json()["app"].get("diagnostics", ""))
    except (requests.RequestException, ValueError, KeyError):
        return ""


def await_end(rm_url: str, nm_urls: Sequence[str], application_id: str, kill: bool) -> dict[str, Any]:
    """Waits until the ResourceManager has finished the application and its containers are gone; its REST record.

    Args:
        nm_urls: the NodeManagers that are asked for its containers.
        kill: whether to kill it at once, because its driver was ended; otherwise only once half the deadline is over.
    """
    deadline = time.monotonic() + END_DEADLINE_S
    kill_at = time.monotonic() if kill else deadline - END_DEADLINE_S / 2
    record: dict[str, Any] = {}
    while time.monotonic() < deadline:
        try:
            answer = requests.get(f"{rm_url}/ws/v1/cluster/apps/{application_id}", timeout=3)
            record = answer.json().get("app", {}) if answer.ok else record
            if record.get("state") in ENDED and not _containers(nm_urls, application_id):
                break
        except (requests.RequestException, ValueError):
            pass  # it may be on its way back
        if time.monotonic() >= kill_at:
            kill_application(rm_url, application_id)
            kill_at = deadline
        time.sleep(0.2)
    return record


def _containers(nm_urls: Sequence[str], application_id: str) -> list[str]:
    """Containers of the application that NodeManagers still have running, as far as these answer."""
    number = application_id.removeprefix("application_")
    found = []
    for url in nm_urls:
        try:
            answer = requests.get(f"{url}/ws/v1/node/containers", timeout=3).json()
        except requests.RequestException:
            continue
        listed = (answer.get("containers") or {}).get("container", [])
        found += [c["id"] for c in listed if number in c["id"] and c.get("state") not in ("COMPLETE", "DONE")]
    return found


def collect(
    cluster: EmbeddedCluster,
    application_id: str,
    offsets: Mapping[str, int],
    job: Job | None,
    bundle: Bundle,
    kill: bool,
) -> list[str]:
    """Copies logs, spans, event log, REST record, markers and block locations into `bundle`, secrets redacted.

    Args:
        offsets: of `log_offsets` before the run.
        job: names input and markers; None for a script of the person's own.
        kill: see `await_end`.

    Returns:
        What could not be had, one line each.
    """
    missing: list[str] = []
    endpoints = cluster.endpoints
    record = await_end(endpoints.rm_url, endpoints.nm_urls, application_id, kill)
    if not record:
        missing.append(f"ResourceManager: no record of {application_id}")
    bundle.add_bytes(json.dumps(record, indent=1).encode(), "evidence/rm-app.json")
    # of a NodeManager that died, or of an application whose ResourceManager did: nobody else will end them
    end(containers_of(cluster.work_dir, application_id), 1)
    missing += _collect_logs(cluster, cluster.container_log_dirs(application_id), offsets, bundle)
    return missing + from_hdfs(hdfs_of(cluster), application_id, *_directories(job), bundle)


def _directories(job: Job | None) -> tuple[str, str]:
    """The job's input and output directories in HDFS; empty for a script of the person's own."""
    return (job.train_dir, job.run_dir) if job else ("", "")


def collect_from_workers(
    cluster: EmbeddedCluster,
    work: Path,
    application_id: str,
    offsets: Mapping[str, int],
    job: Job | None,
    bundle: Bundle,
) -> list[str]:
    """As `collect`, for an application of Spark's own Master; its executors' directories are in `work`."""
    found = sorted(path for path in (work / application_id).glob("*") if path.is_dir())
    directories = {f"executor_{path.name}": path for path in found}
    missing = _collect_logs(cluster, directories, offsets, bundle, EXECUTOR_FILES)
    return missing + from_hdfs(hdfs_of(cluster), application_id, *_directories(job), bundle)


EXECUTOR_FILES = ("stdout", "stderr", "jvm.log", "spans-", "hs_err")
"""How what we take from an executor's working directory begins: it holds more than logs."""


def _collect_logs(
    cluster: EmbeddedCluster,
    directories: Mapping[str, Path],
    offsets: Mapping[str, int],
    bundle: Bundle,
    names: tuple[str, ...] = ("",),
) -> list[str]:
    """Logs and spans of containers or executors whose names begin like one of `names`, and what the daemons logged
    since `offsets`."""
    for container, directory in directories.items():
        for path in sorted(p for p in directory.iterdir() if p.is_file() and p.name.startswith(names)):
            part = "spans" if path.name.startswith("spans-") else "logs/containers"
            bundle.add(path, f"{part}/{container}/{path.name}")
    bundle.add_bytes(json.dumps(cluster.daemons_now(), indent=1).encode(), "evidence/daemons.json")
    for name, path in cluster.log_files().items():
        with path.open("rb") as file:
            file.seek(offsets.get(name, 0))
            bundle.add_bytes(file.read(), f"logs/daemons/{name}.log")
    return [] if directories else ["containers: no log directory"]


@dataclass(frozen=True, slots=True)
class Hdfs:
    """Where evidence lies in HDFS, and who asks for it."""

    webhdfs_url: str
    user: str
    events_dir: str  # spark.eventLog.dir


def hdfs_of(cluster: EmbeddedCluster) -> Hdfs:
    """The embedded cluster's."""
    return Hdfs(cluster.endpoints.webhdfs_url, cluster.user, "/spark-events")


def from_hdfs(hdfs: Hdfs, application_id: str, train_dir: str, run_dir: str, bundle: Bundle) -> list[str]:
    """Event log, markers and block locations; returns what could not be had, one line each.

    Args:
        train_dir, run_dir: the job's input and output directories; empty where there is none.
    """
    missing: list[str] = []
    client = webhdfs.connect(hdfs.webhdfs_url, hdfs.user, timed=False)
    parts: dict[str, Callable[[], None]] = {
        "event log": lambda: _event_log(client, hdfs.events_dir, application_id, bundle)
    }
    if train_dir:
        parts["block locations"] = lambda: _blocks(client, hdfs, train_dir, bundle)
        parts["checksums of the input"] = lambda: _checksums(client, train_dir, bundle)
    if run_dir:
        parts["done-markers"] = lambda: _markers(client, run_dir, bundle)
    for what, collected in parts.items():
        try:
            collected()
        except (webhdfs.HdfsError, requests.RequestException, ValueError) as error:
            missing.append(f"{what}: {' '.join(str(error).split())[:200]}")
    return missing


def _event_log(client: Any, events_dir: str, application_id: str, bundle: Bundle) -> None:
    # in cluster mode its name ends with the attempt; it is still named .inprogress if the driver was killed
    names = [f"{application_id}{suffix}" for suffix in ("", "_1", ".inprogress", "_1.inprogress")]
    found = [name for name in client.list(events_dir) if name in names]
    if not found:
        raise ValueError(
            f"{application_id} has none in {events_dir}; set spark.eventLog.enabled=true and spark.eventLog.dir"
        )
    with client.read(f"{events_dir}/{found[0]}") as reader:
        bundle.add_bytes(reader.read(), "evidence/event-log.jsonl")


def _blocks(client: Any, hdfs: Hdfs, train_dir: str, bundle: Bundle) -> None:
    blocks = {}
    for name, status in client.list(train_dir, status=True):
        query = {"op": "GET_BLOCK_LOCATIONS", "user.name": hdfs.user, "offset": 0, "length": status["length"]}
        url = f"{hdfs.webhdfs_url}/webhdfs/v1{train_dir}/{name}"
        blocks[f"{train_dir}/{name}"] = requests.get(url, query, timeout=5).json()
    bundle.add_bytes(json.dumps(blocks).encode(), "evidence/blocks.json")


def _checksums(client: Any, train_dir: str, bundle: Bundle) -> None:
    """What HDFS says of the input files, and what staging noted of them, which a data set of before does not have."""
    with client.read(f"{Path(train_dir).parent}/{STAGED}") as reader:
        noted: dict[str, str] = json.loads(reader.read() or b"{}")
    kept = {}
    for name in client.list(train_dir):
        path = f"{train_dir}/{name}"
        found = client.checksum(path)
        if found["algorithm"] == ALGORITHM:  # else the file's blocks or chunks are not as we write them
            kept[path] = found["bytes"][: 2 * found["length"]]  # zeros follow
    staged = {path: checksum for path, checksum in noted.items() if path in kept}
    bundle.add_bytes(json.dumps({"staged": staged, "hdfs": kept}).encode(), "evidence/checksums.json")


def _markers(client: Any, run_dir: str, bundle: Bundle) -> None:
    markers = {}
    for name in client.list(f"{run_dir}/done"):
        with client.read(f"{run_dir}/done/{name}") as reader:
            markers[name] = reader.read().decode()
    bundle.add_bytes(json.dumps(markers).encode(), "evidence/markers.json")


def executor_peak(nm_urls: Sequence[str], application_id: str, bundle: Bundle) -> int | None:
    """The peak of resident memory of the largest executor container with its trainer, in bytes.

    It is the NodeManager's own record, taken once a second over the container's process tree; it keeps the record for
    a minute after the container's end. None where it could not be read.
    """
    number = application_id.removeprefix("application_")
    beans: list[dict[str, Any]] = []
    for url in nm_urls:
        try:
            answer = requests.get(f"{url}/jmx", {"qry": "Hadoop:service=NodeManager,*"}, timeout=5).json()
        except (requests.RequestException, ValueError):
            continue
        beans += [bean for bean in answer.get("beans", []) if number in bean.get("name", "")]
    bundle.add_bytes(json.dumps(beans, indent=1).encode(), "evidence/nm-containers.json")
    executors = [bean for bean in beans if not bean["name"].endswith("_000001")]
    peaks_mb = [
        bean[key] for bean in executors for key in bean if key.lower().startswith("pmemusage") and "max" in key.lower()
    ]
    return int(max(peaks_mb)) << 20 if peaks_mb and max(peaks_mb) > 0 else None
