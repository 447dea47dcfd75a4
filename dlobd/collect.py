"""Brings the evidence of one application into its bundle, while the cluster still has it.

Everything after this step works on the bundle alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from dlobd import webhdfs
from dlobd.cluster.embedded import EmbeddedCluster
from dlobd.store import Bundle

END_DEADLINE_S = 20.0
"""How long the containers of an ended application may take to leave."""


def log_offsets(cluster: EmbeddedCluster) -> dict[str, int]:
    """Where each daemon log ends now, in bytes: a run's slice begins there."""
    return {name: path.stat().st_size for name, path in cluster.log_files().items()}


def kill_application(cluster: EmbeddedCluster, application_id: str) -> None:
    """Asks the ResourceManager to kill an application; silent if it cannot be asked, since we are on our way out."""
    try:
        url = f"{cluster.endpoints.rm_url}/ws/v1/cluster/apps/{application_id}/state"
        requests.put(url, json={"state": "KILLED"}, timeout=3)
    except requests.RequestException:
        pass


def await_end(cluster: EmbeddedCluster, application_id: str, kill: bool) -> dict[str, Any]:
    """Waits until the ResourceManager has finished the application and its containers are gone; its REST record.

    Args:
        kill: whether to kill it at once, because its driver was ended; otherwise only once half the deadline is over.
    """
    deadline = time.monotonic() + END_DEADLINE_S
    kill_at = time.monotonic() if kill else deadline - END_DEADLINE_S / 2
    record: dict[str, Any] = {}
    while time.monotonic() < deadline:
        try:
            answer = requests.get(f"{cluster.endpoints.rm_url}/ws/v1/cluster/apps/{application_id}", timeout=3)
            record = answer.json().get("app", {}) if answer.ok else record
            if record.get("state") in ("FINISHED", "FAILED", "KILLED") and not _containers(cluster, application_id):
                break
        except (requests.RequestException, ValueError):
            break
        if time.monotonic() >= kill_at:
            kill_application(cluster, application_id)
            kill_at = deadline
        time.sleep(0.2)
    return record


def _containers(cluster: EmbeddedCluster, application_id: str) -> list[str]:
    """Containers of the application that NodeManagers still have running."""
    number = application_id.removeprefix("application_")
    found = []
    for url in cluster.endpoints.nm_urls:
        answer = requests.get(f"{url}/ws/v1/node/containers", timeout=3).json()
        listed = (answer.get("containers") or {}).get("container", [])
        found += [c["id"] for c in listed if number in c["id"] and c.get("state") not in ("COMPLETE", "DONE")]
    return found


def collect(
    cluster: EmbeddedCluster,
    application_id: str,
    offsets: Mapping[str, int],
    train_dir: str,
    run_dir: str,
    bundle: Bundle,
    kill: bool,
) -> list[str]:
    """Copies logs, spans, event log, REST record, markers and block locations into `bundle`, secrets redacted.

    Args:
        offsets: of `log_offsets` before the run.
        train_dir, run_dir: the job's input and output directories in HDFS.
        kill: see `await_end`.

    Returns:
        What could not be had, one line each.
    """
    missing: list[str] = []
    record = await_end(cluster, application_id, kill)
    if not record:
        missing.append(f"ResourceManager: no record of {application_id}")
    bundle.add_bytes(json.dumps(record, indent=1).encode(), "evidence/rm-app.json")
    missing += _collect_logs(cluster, cluster.container_log_dirs(application_id), offsets, bundle)
    return missing + _collect_files(cluster, application_id, train_dir, run_dir, bundle)


def collect_from_workers(
    cluster: EmbeddedCluster,
    work: Path,
    application_id: str,
    offsets: Mapping[str, int],
    train_dir: str,
    run_dir: str,
    bundle: Bundle,
) -> list[str]:
    """As `collect`, for an application of Spark's own Master; its executors' directories are in `work`."""
    found = sorted(path for path in (work / application_id).glob("*") if path.is_dir())
    directories = {f"executor_{path.name}": path for path in found}
    missing = _collect_logs(cluster, directories, offsets, bundle, EXECUTOR_FILES)
    return missing + _collect_files(cluster, application_id, train_dir, run_dir, bundle)


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
    for name, path in cluster.log_files().items():
        with path.open("rb") as file:
            file.seek(offsets.get(name, 0))
            bundle.add_bytes(file.read(), f"logs/daemons/{name}.log")
    return [] if directories else ["containers: no log directory"]


def _collect_files(
    cluster: EmbeddedCluster, application_id: str, train_dir: str, run_dir: str, bundle: Bundle
) -> list[str]:
    """Event log, markers and block locations."""
    missing: list[str] = []
    try:
        _collect_from_hdfs(cluster, application_id, train_dir, run_dir, bundle, missing)
    except (webhdfs.HdfsError, requests.RequestException, ValueError) as error:
        missing.append(f"HDFS: {' '.join(str(error).split())[:200]}")
    return missing


def _collect_from_hdfs(
    cluster: EmbeddedCluster, application_id: str, train_dir: str, run_dir: str, bundle: Bundle, missing: list[str]
) -> None:
    url = cluster.endpoints.webhdfs_url
    client = webhdfs.connect(url, cluster.user, timed=False)
    # still named .inprogress if the driver was killed
    for name in (application_id, f"{application_id}.inprogress"):
        if client.status(f"/spark-events/{name}", strict=False):
            with client.read(f"/spark-events/{name}") as reader:
                bundle.add_bytes(reader.read(), "evidence/event-log.jsonl")
            break
    else:
        missing.append("event log: not in HDFS")
    blocks = {}
    for name, status in client.list(train_dir, status=True):
        query = {"op": "GET_BLOCK_LOCATIONS", "user.name": cluster.user, "offset": 0, "length": status["length"]}
        blocks[f"{train_dir}/{name}"] = requests.get(f"{url}/webhdfs/v1{train_dir}/{name}", query, timeout=5).json()
    bundle.add_bytes(json.dumps(blocks).encode(), "evidence/blocks.json")
    markers = {}
    for name in client.list(f"{run_dir}/done"):
        with client.read(f"{run_dir}/done/{name}") as reader:
            markers[name] = reader.read().decode()
    bundle.add_bytes(json.dumps(markers).encode(), "evidence/markers.json")


def memory(cluster: EmbeddedCluster, application_id: str, bundle: Bundle) -> dict[str, int | None]:
    """Resident memory of the daemons now, and the peak of the largest executor container with its trainer, in bytes.

    The peak is the NodeManager's own record, taken once a second over the container's process tree; it keeps the
    record for a minute after the container's end. None where it could not be read.
    """
    number = application_id.removeprefix("application_")
    beans: list[dict[str, Any]] = []
    for url in cluster.endpoints.nm_urls:
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
    return {
        "daemons_bytes": sum(cluster.memory().values()),
        "executor_peak_bytes": int(max(peaks_mb)) << 20 if peaks_mb and max(peaks_mb) > 0 else None,
    }
