"""Copies the evidence of an application of any YARN cluster into a bundle, over the cluster's interfaces.

    ResourceManager   REST: the application and its attempts
    containers        REST of each NodeManager while it has the logs, else the logs that YARN has aggregated into HDFS
    daemons           the logs under /logs/ of each daemon's web server, cut to this application
    HDFS              event log, done-markers, block locations

Nothing is read from a local file system. A missing source is reported with the setting that would provide it.
"""

import json
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import requests

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop import aggregated_logs, http_session
from dlobd.hadoop.web import MAX_NODES, TIMEOUT_S, HadoopWeb, JsonObject, application_record, beans
from dlobd.run.collect import application, hdfs

MAX_LOG_BYTES = 64 << 20
"""Bytes to read from the end of a daemon's log, because its size before the run is unknown."""

AGGREGATION_DEADLINE_S = 30.0
"""Timeout for YARN to aggregate the logs of an ended application in HDFS."""

_LOG_URL = re.compile(r"(https?://[^/\"\s]+)/node/containerlogs/(container_[0-9a-z_]+)/")
_CONTAINER = re.compile(r"\bcontainer_(?:e\d+_)?\d+_\d+_\d+_\d+\b")
_LINK = re.compile(r'href="/logs/([\w.-]+)"')
_STAMPED = re.compile(rb"^\d{6,} \d{4}-\d\d-", re.MULTILINE)
_STAMP = re.compile(rb"^\d{6,} (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) ")

SIDE_LOGS = {"hdfs-audit.log": "namenode-audit", "clienttrace.log": "clienttrace"}
"""Names of logs for importers, by file name under /logs/."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Query for the logs of the run's applications between two wall-clock times in milliseconds since the epoch."""

    applications: tuple[str, ...]
    begin_ms: int
    end_ms: int
    user: str
    home: str

    @property
    def marks(self) -> tuple[bytes, bytes]:
        """Texts that mark the NameNode's lines about this user's operations and files."""
        return f"ugi={self.user} ".encode(), f"{self.home}/".encode()

    @property
    def number(self) -> re.Pattern[bytes]:
        """Pattern that matches the IDs of these applications and their containers, and of no other application."""
        numbers = "|".join(one.removeprefix("application_") for _, one in application.on_yarn(self.applications))
        return re.compile(rf"(?<!\d)(?:{numbers})(?!\d)".encode())


def gather(
    web: HadoopWeb, java: Path, asked: LogQuery, events_dir: str, train_dir: str, run_dir: str, bundle: Bundle
) -> list[str]:
    """Collect all evidence of ended applications; return a line for each missing source. `java` is the executable that
    reads aggregated logs; for the directories see `hdfs.from_hdfs`."""
    bundle.add_json(_addresses(web), files.HOSTS)
    on_nodes = []  # applications whose logs are on the nodes, with their masters
    for number, one in application.on_yarn(asked.applications):
        record, attempts = _settled(web, one), web.attempts(one)
        bundle.add_json(record, files.of_application(files.RM_APPLICATION, number))
        bundle.add_json(attempts, files.of_application(files.RM_ATTEMPTS, number))
        aggregated = record.get("logAggregationStatus", "DISABLED") != "DISABLED"
        if aggregated and _aggregated(web, java, one, record, bundle):
            continue
        masters = {
            at["containerId"]: [f"http://{at['nodeHttpAddress']}"] for at in attempts if at.get("nodeHttpAddress")
        }
        copied = {container for container, urls in masters.items() if _from_nodes(container, urls, bundle)}
        on_nodes.append((number, one, aggregated, masters, copied))
    # the driver's log has the path of the event log, and the event log the nodes of the executors
    missing = hdfs.from_hdfs(web.webhdfs_url, web.user, events_dir, asked.applications, train_dir, run_dir, bundle)
    for number, one, aggregated, masters, copied in on_nodes:
        events = bundle.path / files.of_application(files.EVENT_LOG, number)
        missing += _executor_logs(web, one, aggregated, masters, copied, events, bundle)
    return missing + _daemons(web, asked, bundle)


def _settled(web: HadoopWeb, application_id: str) -> JsonObject:
    """Return the ResourceManager's record. If YARN aggregates logs, wait until it has aggregated them."""
    deadline = time.monotonic() + AGGREGATION_DEADLINE_S
    while True:
        record = application_record(web.rm_url, application_id)
        if record.get("logAggregationStatus") not in ("NOT_START", "RUNNING") or time.monotonic() > deadline:
            return record
        time.sleep(0.5)


def _addresses(web: HadoopWeb) -> dict[str, str]:
    """Return the addresses of nodes by host name, because Spark's event log identifies executors by host name."""
    addresses = {}
    for host, _ in list(web.nodes())[:MAX_NODES]:
        try:
            addresses[host] = socket.gethostbyname(host)
        except OSError:
            continue  # this machine uses another name for the node
    return addresses


# ---- containers


def _aggregated(web: HadoopWeb, java: Path, application_id: str, record: JsonObject, bundle: Bundle) -> bool:
    """Copy the aggregated logs of all containers; return False if there are none."""
    found = False
    for log in aggregated_logs.read(web.conf.directory, java, application_id, record.get("user", web.user)):
        _add(bundle, *log)
        found = True
    return found


def _executor_logs(
    web: HadoopWeb,
    application_id: str,
    aggregated: bool,
    masters: Mapping[str, list[str]],
    copied: set[str],
    events: Path,
    bundle: Bundle,
) -> list[str]:
    """Copy the logs of executors from the NodeManagers; `copied`: the ApplicationMasters whose logs were copied."""
    nodes = list(web.nodes())
    executors = _executors(bundle, events, copied, nodes)
    copied |= {container for container, urls in executors.items() if _from_nodes(container, urls, bundle)}
    lost = sorted((masters.keys() | executors.keys()) - copied)
    if copied and not lost:
        return []
    remedy = "aggregation is off; set yarn.log-aggregation-enable=true"
    if aggregated:
        remedy = "the aggregated logs could not be read; check yarn.nodemanager.remote-app-log-dir"
    what = ", ".join(lost) if copied else application_id
    return [f"container logs of {what}: NodeManagers have removed them or do not answer, and {remedy}"]


def _executors(
    bundle: Bundle, events: Path, masters: Iterable[str], nodes: list[tuple[str, str]]
) -> dict[str, list[str]]:
    """Map executor containers to NodeManagers that may have their logs, from event log and ApplicationMaster's log."""
    urls = dict.fromkeys(url for _, url in nodes[:MAX_NODES])
    executors: dict[str, list[str]] = {}
    if events.exists():
        for url, container in _LOG_URL.findall(events.read_text(errors="replace")):
            executors[container] = [url]
    for master in masters:
        for log in (bundle.path / files.CONTAINER_LOGS / master / name for name in (files.SPARK_LOG, "stderr")):
            for container in _CONTAINER.findall(log.read_text(errors="replace") if log.exists() else ""):
                executors.setdefault(container, list(urls))
    return {container: where for container, where in executors.items() if container not in set(masters)}


def _from_nodes(container: str, urls: Iterable[str], bundle: Bundle) -> bool:
    for url in urls:
        answer = HadoopWeb.get_json(f"{url}/ws/v1/node/containers/{container}/logs") or {}
        info = answer.get("containerLogsInfo") or {}
        listed = info[0] if isinstance(info, list) and info else info
        files = [entry["fileName"] for entry in (listed or {}).get("containerLogInfo", [])]
        for name in files:
            answer_bytes = _get(f"{url}/ws/v1/node/containerlogs/{container}/{name}") or b""
            # the content has a header and a footer, as in aggregated logs
            for _, data in aggregated_logs.split(answer_bytes):
                _add(bundle, container, name, data)
        if files:
            return True
    return False


def _add(bundle: Bundle, container: str, name: str, data: bytes) -> None:
    part = "spans" if name.startswith("spans-") else files.CONTAINER_LOGS
    bundle.add_bytes(data, f"{part}/{container}/{Path(name).name}")


# ---- daemons


def _daemons(web: HadoopWeb, asked: LogQuery, bundle: Bundle) -> list[str]:
    missing = []
    on_yarn = any(application.on_yarn(asked.applications))
    nodes = enumerate(web.node_urls() if on_yarn else ())
    if on_yarn and not _daemon(web.rm_url, "resourcemanager", "", asked, bundle):
        missing.append(
            "ResourceManager log: no log under /logs/ has dlobd's timestamps (yarn/base/log4j2-daemons.properties); "
            "YARN's steps have only REST timestamps"
        )
    if not _daemon(web.webhdfs_url, "namenode", "", asked, bundle):
        missing.append(
            "NameNode log: no log under /logs/ has dlobd's timestamps; the ends of staging and event log are unknown"
        )
    # a list, because `any` alone would stop at the first NodeManager with lines
    if not sum(_daemon(url, "nodemanager", f"-{i}", asked, bundle) for i, url in nodes) and on_yarn:
        missing.append(
            "NodeManager logs: none under /logs/ has dlobd's timestamps; localisation and launch are one span"
        )
    if not sum(_daemon(url, "datanode", f"-{i}", asked, bundle) for i, url in enumerate(_datanodes(web))):
        missing.append("DataNode client trace: no clienttrace.log under /logs/; HDFS time in Spark's reads is unknown")
    return missing


def _datanodes(web: HadoopWeb) -> list[str]:
    found = beans(web.webhdfs_url, "Hadoop:service=NameNode,name=NameNodeInfo")
    nodes = json.loads(found[0].get("LiveNodes", "{}")) if found else {}
    return [f"http://{node['infoAddr']}" for node in nodes.values() if node.get("infoAddr")][:MAX_NODES]


def _daemon(url: str, kind: str, suffix: str, asked: LogQuery, bundle: Bundle) -> bool:
    """Copy the log lines about this application; return False if no line has a timestamp for importers."""
    listing = _get(f"{url}/logs/")
    stamped = False
    for name in dict.fromkeys(_LINK.findall((listing or b"").decode(errors="replace"))):
        target = SIDE_LOGS.get(name)
        if target == "clienttrace":
            target = f"{kind}{suffix}-clienttrace"
        elif target is None and kind in name and name.endswith(".log") and "audit" not in name:
            target = f"{kind}{suffix}"
        if target is None or not (data := _get(f"{url}/logs/{name}", MAX_LOG_BYTES)):
            continue
        if lines := b"".join(_ours(data, asked, kind)):
            bundle.add_bytes(lines, f"logs/daemons/{target}.log")
            stamped = stamped or _STAMPED.search(lines) is not None
    return stamped


def _ours(data: bytes, asked: LogQuery, kind: str) -> Iterator[bytes]:
    """Yield the lines of this application: YARN's lines by the application's ID, HDFS's lines by time.

    Data of other users of the cluster never goes into a bundle.
    """
    number = asked.number
    for line in data.splitlines(keepends=True):
        if kind in ("resourcemanager", "nodemanager"):
            if number.search(line):
                yield line
            continue
        if kind == "namenode" and not any(mark in line for mark in asked.marks):
            continue
        if stamp := _STAMP.match(line):
            at = datetime.fromisoformat(stamp[1].decode()).replace(tzinfo=UTC)
            if asked.begin_ms <= round(at.timestamp() * 1000) <= asked.end_ms:
                yield line


def _get(url: str, last_bytes: int | None = None) -> bytes | None:
    """Return the content at `url`, or its end; None if the server does not answer."""
    headers = {"Range": f"bytes=-{last_bytes}"} if last_bytes else {}
    try:
        answer = http_session.get(url, timeout=TIMEOUT_S, headers=headers)
        return answer.content if answer.ok else None
    except requests.RequestException:
        return None
