"""HDFS and YARN of any cluster through their web interfaces: who is active, what YARN knows of an application.

Every request has a deadline. What does not answer is named with its address and the key that the address comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import requests

from dlobd.errors import ClusterError
from dlobd.hadoop.site_files import Address, HadoopConf

Timeout = tuple[float, float]

TIMEOUT_S: Timeout = (5.0, 30.0)
"""To connect, and between two bytes."""

MAX_NODES = 64
"""So many NodeManagers are asked one by one; on larger clusters only those that are known to have had a container."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What a NodeManager that runs has for containers: in all, and of its memory now. `resources` has all types that
    the ResourceManager knows, such as yarn.io/gpu, with how many of each the node has."""

    memory_mb: int
    free_memory_mb: int
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HadoopWeb:
    """A cluster whose active NameNode and ResourceManager have answered."""

    conf: HadoopConf
    user: str
    webhdfs_url: str
    rm_url: str
    hadoop_version: str | None
    home: str  # of `user` in HDFS

    @classmethod
    def connect(cls, conf: HadoopConf, user: str) -> HadoopWeb:
        """Finds the active NameNode and ResourceManager.

        Raises:
            UsageError: the configuration names a cluster that dlobd cannot use.
            ClusterError: one of them does not answer, or none is active.
        """
        conf.check_supported()
        namenode, home = active_namenode(conf, user, TIMEOUT_S)
        manager, info = active_resourcemanager(conf, TIMEOUT_S)
        return cls(conf, user, namenode.url, manager.url, info.get("hadoopVersion"), home)

    def node_urls(self) -> list[str]:
        """Web addresses of the NodeManagers that run, at most `MAX_NODES`."""
        return [url for _, url in self.nodes()][:MAX_NODES]

    def nodes(self) -> Iterator[tuple[str, str]]:
        """(host, web address) of each NodeManager that runs; none where they cannot be listed."""
        answer = self.get_json(f"{self.rm_url}/ws/v1/cluster/nodes", states="RUNNING")
        for node in ((answer or {}).get("nodes") or {}).get("node", []):
            if node.get("nodeHTTPAddress"):
                yield node.get("nodeHostName", ""), f"http://{node['nodeHTTPAddress']}"

    def node_resources(self) -> list[NodeResources]:
        """Of each NodeManager that runs; empty where the ResourceManager does not say."""
        answer = self.get_json(f"{self.rm_url}/ws/v1/cluster/nodes", states="RUNNING")
        found = []
        for node in ((answer or {}).get("nodes") or {}).get("node", []):
            total = node.get("totalResource") or {}
            types = (total.get("resourceInformations") or {}).get("resourceInformation", [])
            if "memory" in total:
                resources = {kind["name"]: kind.get("value", 0) for kind in types}
                found.append(NodeResources(total["memory"], node.get("availMemoryMB", total["memory"]), resources))
        return found

    def setting(self, key: str) -> int | None:
        """A number of the ResourceManager's configuration; None where it does not say."""
        value = self.property(self.rm_url, key) or ""
        return int(value) if value.isdecimal() else None

    def property(self, url: str, key: str) -> str | None:
        """A property of the configuration of the daemon at `url`; None where it does not say."""
        answer = self.get_json(f"{url}/conf", format="json", name=key)
        value = ((answer or {}).get("property") or {}).get("value")
        return None if value is None else str(value)

    def application(self, application_id: str) -> dict[str, Any]:
        """The ResourceManager's record of it; empty if it has none."""
        return application_record(self.rm_url, application_id)

    def attempts(self, application_id: str) -> list[dict[str, Any]]:
        """Its attempts, oldest first, with the ApplicationMaster's container and node."""
        answer = self.get_json(f"{self.rm_url}/ws/v1/cluster/apps/{application_id}/appattempts")
        return sorted(((answer or {}).get("appAttempts") or {}).get("appAttempt", []), key=lambda one: one.get("id", 0))

    @staticmethod
    def get_json(url: str, timeout_s: Timeout = TIMEOUT_S, **query: str) -> dict[str, Any] | None:
        """What `url` answers; None if it does not, or not with a JSON object."""
        try:
            answer = requests.get(url, query, timeout=timeout_s, headers={"Accept": "application/json"})
            found = answer.json() if answer.ok else None
        except (requests.RequestException, ValueError):
            return None
        return found if isinstance(found, dict) else None


def application_record(rm_url: str, application_id: str, timeout_s: Timeout = TIMEOUT_S) -> dict[str, Any]:
    """What the ResourceManager says of an application; empty if it says nothing, or cannot be asked."""
    answer = HadoopWeb.get_json(f"{rm_url}/ws/v1/cluster/apps/{application_id}", timeout_s)
    return (answer or {}).get("app") or {}


def active_namenode(conf: HadoopConf, user: str, timeout_s: Timeout = TIMEOUT_S) -> tuple[Address, str]:
    """The NameNode that answers, and the user's home directory there. Raises UsageError, ClusterError."""
    return _first("HDFS", conf, conf.namenodes(), lambda address: _home(address.url, user, timeout_s), timeout_s)


def active_resourcemanager(conf: HadoopConf, timeout_s: Timeout = TIMEOUT_S) -> tuple[Address, dict[str, Any]]:
    """The active ResourceManager, and what it says of itself. Raises UsageError, ClusterError."""
    managers = conf.resourcemanagers()
    return _first("YARN", conf, managers, lambda address: _active_manager(address, timeout_s), timeout_s)


def running_nodes(resourcemanager: Address, timeout_s: Timeout = TIMEOUT_S) -> int | None:
    """How many NodeManagers run, as the ResourceManager counts them; None where it does not say."""
    answer = HadoopWeb.get_json(f"{resourcemanager.url}/ws/v1/cluster/metrics", timeout_s)
    count = ((answer or {}).get("clusterMetrics") or {}).get("activeNodes")
    return count if isinstance(count, int) else None


def _first(
    who: str, conf: HadoopConf, addresses: Sequence[Address], ask: Callable[[Address], Answer], timeout_s: Timeout
) -> tuple[Address, Answer]:
    """The first address that `ask` likes, and its answer; any others are on standby."""
    reasons = []
    for address in addresses:
        try:
            return address, ask(address)
        except (requests.RequestException, _Refusal, KeyError, TypeError) as error:
            reasons.append(f"{address.netloc} ({address.key}): {_reason(error, timeout_s)}")
    raise ClusterError(
        f"{who} of {conf.directory} does not answer at {'; '.join(reasons)}.",
        "check that this machine can reach that address, and that --hadoop-conf is for the right cluster",
    )


class _Refusal(Exception):
    """It answered, but not as it should."""


def _home(url: str, user: str, timeout_s: Timeout) -> str:
    """The user's home directory; asks for the root first, because a NameNode on standby knows homes too."""
    for operation in ("GETFILESTATUS", "GETHOMEDIRECTORY"):
        answer = requests.get(f"{url}/webhdfs/v1/", {"op": operation, "user.name": user}, timeout=timeout_s)
        if answer.status_code == 401:
            raise _Refusal("it asks for authentication, which dlobd does not have")
        if not answer.ok:
            remote = (
                answer.json().get("RemoteException", {}) if "json" in answer.headers.get("Content-Type", "") else {}
            )
            raise _Refusal(remote.get("message") or f"HTTP status {answer.status_code}")
    return str(answer.json()["Path"])


def _active_manager(address: Address, timeout_s: Timeout) -> dict[str, Any]:
    answer = requests.get(f"{address.url}/ws/v1/cluster/info", timeout=timeout_s)
    if not answer.ok:
        raise _Refusal(f"HTTP status {answer.status_code}")
    info: dict[str, Any] = answer.json()["clusterInfo"]
    if info.get("haState", "ACTIVE") != "ACTIVE":
        raise _Refusal(f"it is {info['haState']}")
    return info


def _reason(error: Exception, timeout_s: Timeout) -> str:
    """What went wrong, without the ladder of classes that requests puts around it."""
    words = str(error)
    for mark, reason in (
        ("Name or service not known", "unknown host"),
        ("Temporary failure in name resolution", "unknown host"),
        ("No address associated with hostname", "unknown host"),
        ("Connection refused", "connection refused"),
        ("timed out", f"no answer within {timeout_s[0]:.0f} s to connect or {timeout_s[1]:.0f} s to answer"),
        ("No route to host", "no route to host"),
        ("Network is unreachable", "network is unreachable"),
    ):
        if mark in words:
            return reason
    if isinstance(error, (KeyError, TypeError, requests.JSONDecodeError)):
        return "it does not answer as Hadoop does"
    return " ".join(words.split())[:200]
