"""Web interfaces of HDFS and YARN: the active daemons, and YARN's records of applications and nodes.

Every request has a timeout. An error names the address that did not answer and the key that configures it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import requests

from dlobd.errors import ClusterError
from dlobd.hadoop import http_session
from dlobd.hadoop.failures import reason
from dlobd.hadoop.site_files import Address, HadoopConf

JsonObject = dict[str, Any]
"""JSON object from YARN or HDFS; its members depend on the version of Hadoop."""

Timeout = tuple[float, float]

TIMEOUT_S: Timeout = (5.0, 30.0)
"""Timeouts for connecting, and between two bytes."""

MAX_NODES = 64
"""Maximum number of NodeManagers to query. On larger clusters dlobd queries only NodeManagers with containers."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Resources of a running NodeManager for containers. `resources`: amount by resource type, such as yarn.io/gpu."""

    memory_mb: int
    free_memory_mb: int
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HadoopWeb:
    """Clients of a cluster's active NameNode and ResourceManager."""

    conf: HadoopConf
    user: str
    webhdfs_url: str
    rm_url: str
    hadoop_version: str | None
    home: str  # home directory of `user` in HDFS

    @classmethod
    def connect(cls, conf: HadoopConf, user: str) -> Self:
        """Find the active NameNode and ResourceManager. Raises UsageError if dlobd cannot use the cluster, ClusterError
        if one of them does not answer, or none is active."""
        conf.check_supported()
        namenode, home = active_namenode(conf, user, TIMEOUT_S)
        manager, info = active_resourcemanager(conf, TIMEOUT_S)
        return cls(conf, user, namenode.url, manager.url, info.get("hadoopVersion"), home)

    def node_urls(self) -> list[str]:
        """Return the URLs of running NodeManagers, at most `MAX_NODES`."""
        return [url for _, url in self.nodes()][:MAX_NODES]

    def nodes(self) -> Iterator[tuple[str, str]]:
        """Yield host and URL of each running NodeManager; nothing if the ResourceManager does not list them."""
        for node in nodes(self.rm_url, states="RUNNING"):
            if node.get("nodeHTTPAddress"):
                yield node.get("nodeHostName", ""), f"http://{node['nodeHTTPAddress']}"

    def node_resources(self) -> list[NodeResources]:
        """Return the resources of each running NodeManager; empty if the ResourceManager does not report them."""
        resources_of_nodes = []
        for node in nodes(self.rm_url, states="RUNNING"):
            total = node.get("totalResource") or {}
            types = (total.get("resourceInformations") or {}).get("resourceInformation", [])
            if "memory" in total:
                resources = {kind["name"]: kind.get("value", 0) for kind in types}
                free_mb = node.get("availMemoryMB", total["memory"])
                resources_of_nodes.append(NodeResources(total["memory"], free_mb, resources))
        return resources_of_nodes

    def setting(self, key: str) -> int | None:
        """Return a numeric property of the ResourceManager; None if the ResourceManager does not report it."""
        value = self.property(self.rm_url, key) or ""
        return int(value) if value.isdecimal() else None

    def property(self, url: str, key: str) -> str | None:
        """Return a property of the configuration of the daemon at `url`; None if the daemon does not report it."""
        answer = self.get_json(f"{url}/conf", format="json", name=key)
        value = ((answer or {}).get("property") or {}).get("value")
        return None if value is None else str(value)

    def attempts(self, application_id: str) -> list[JsonObject]:
        """Return the attempts of an application, oldest first, with the ApplicationMaster's container and node."""
        url = f"{self.rm_url}/ws/v1/cluster/apps/{application_id}/appattempts"
        return sorted(_listed(url, "appAttempts", "appAttempt"), key=lambda one: one.get("id", 0))

    @staticmethod
    def get_json(url: str, timeout_s: Timeout = TIMEOUT_S, **query: str) -> JsonObject | None:
        """Return the JSON object at `url`; None if the answer is no JSON object."""
        try:
            answer = http_session.get(url, query, timeout=timeout_s, headers={"Accept": "application/json"})
            document = answer.json() if answer.ok else None
        except requests.RequestException:
            return None
        return document if isinstance(document, dict) else None


def _listed(url: str, outer: str, inner: str, timeout_s: Timeout = TIMEOUT_S, **query: str) -> list[JsonObject]:
    """Return a list in the JSON object at `url`; empty without an answer. YARN omits empty lists, or writes null."""
    answer = HadoopWeb.get_json(url, timeout_s, **query) or {}
    return list((answer.get(outer) or {}).get(inner) or [])


def nodes(rm_url: str, timeout_s: Timeout = TIMEOUT_S, **query: str) -> list[JsonObject]:
    """Return the ResourceManager's records of the nodes that have registered; empty if it does not answer."""
    return _listed(f"{rm_url}/ws/v1/cluster/nodes", "nodes", "node", timeout_s, **query)


def containers(nm_url: str, timeout_s: Timeout = TIMEOUT_S) -> list[JsonObject]:
    """Return the containers of a NodeManager; empty if it does not answer."""
    return _listed(f"{nm_url}/ws/v1/node/containers", "containers", "container", timeout_s)


def beans(url: str, query: str, timeout_s: Timeout = TIMEOUT_S) -> list[JsonObject]:
    """Return the JMX beans of a daemon that match a query; empty if it does not answer."""
    return list((HadoopWeb.get_json(f"{url}/jmx", timeout_s, qry=query) or {}).get("beans") or [])


def application_record(rm_url: str, application_id: str, timeout_s: Timeout = TIMEOUT_S) -> JsonObject:
    """Return the ResourceManager's record of an application; empty if it has no record, or does not answer."""
    answer = HadoopWeb.get_json(f"{rm_url}/ws/v1/cluster/apps/{application_id}", timeout_s)
    return (answer or {}).get("app") or {}


def active_namenode(conf: HadoopConf, user: str, timeout_s: Timeout = TIMEOUT_S) -> tuple[Address, str]:
    """Return the active NameNode and the user's home directory. Raises UsageError, ClusterError."""
    return _first("HDFS", conf, conf.namenodes(), lambda address: _home(address.url, user, timeout_s), timeout_s)


def active_resourcemanager(conf: HadoopConf, timeout_s: Timeout = TIMEOUT_S) -> tuple[Address, JsonObject]:
    """Return the active ResourceManager and its cluster info. Raises UsageError, ClusterError."""
    managers = conf.resourcemanagers()
    return _first("YARN", conf, managers, lambda address: _active_manager(address, timeout_s), timeout_s)


def running_nodes(resourcemanager: Address, timeout_s: Timeout = TIMEOUT_S) -> int | None:
    """Return the number of running NodeManagers; None if the ResourceManager does not report it."""
    answer = HadoopWeb.get_json(f"{resourcemanager.url}/ws/v1/cluster/metrics", timeout_s)
    count = ((answer or {}).get("clusterMetrics") or {}).get("activeNodes")
    return count if isinstance(count, int) else None


def _first(
    who: str, conf: HadoopConf, addresses: Sequence[Address], ask: Callable[[Address], Answer], timeout_s: Timeout
) -> tuple[Address, Answer]:
    """Return the first address for which `ask` succeeds, and its answer. Daemons on standby fail."""
    reasons = []
    for address in addresses:
        try:
            return address, ask(address)
        except requests.RequestException as error:
            reasons.append(f"{address.netloc} ({address.key}): {reason(error, *timeout_s)}")
        except _Refusal as error:
            reasons.append(f"{address.netloc} ({address.key}): {' '.join(str(error).split())[:200]}")
    raise ClusterError(
        f"{who} of {conf.directory} does not answer at {'; '.join(reasons)}.",
        "check that this machine can reach that address, and that --hadoop-conf is for the right cluster",
    )


NOT_HADOOP = "it does not answer as Hadoop does"


class _Refusal(Exception):
    """Error of a daemon that answers without the expected information."""


def _home(url: str, user: str, timeout_s: Timeout) -> str:
    """Return the user's home directory. Request the root first: a standby NameNode also returns homes."""
    for operation in ("GETFILESTATUS", "GETHOMEDIRECTORY"):
        answer = http_session.get(f"{url}/webhdfs/v1/", {"op": operation, "user.name": user}, timeout=timeout_s)
        if answer.status_code == 401:
            raise _Refusal("it requires authentication, which dlobd does not support")
        if not answer.ok:
            remote = (
                answer.json().get("RemoteException", {}) if "json" in answer.headers.get("Content-Type", "") else {}
            )
            raise _Refusal(remote.get("message") or f"HTTP status {answer.status_code}")
    return str(_member(answer, "Path"))


def _active_manager(address: Address, timeout_s: Timeout) -> JsonObject:
    answer = http_session.get(f"{address.url}/ws/v1/cluster/info", timeout=timeout_s)
    if not answer.ok:
        raise _Refusal(f"HTTP status {answer.status_code}")
    info = _member(answer, "clusterInfo")
    if not isinstance(info, dict):
        raise _Refusal(NOT_HADOOP)
    if info.get("haState", "ACTIVE") != "ACTIVE":
        raise _Refusal(f"it is {info['haState']}")
    return info


def _member(answer: requests.Response, name: str) -> object:
    """Return a member of the JSON object in an answer. Raises _Refusal if the member is missing."""
    try:
        document = answer.json()
    except requests.JSONDecodeError:
        raise _Refusal(NOT_HADOOP) from None
    if not isinstance(document, dict) or name not in document:
        raise _Refusal(NOT_HADOOP)
    return document[name]
