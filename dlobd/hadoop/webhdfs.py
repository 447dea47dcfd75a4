"""HDFS over WebHDFS. Both legs of every call are timed: the NameNode locates a file, the DataNode streams it.

The client is that of the `hdfs` package, with an HTTP adapter of dlobd. Unlike the package's interface, the adapter
can time each leg of a redirected call and identify the daemon that did not answer. If a DataNode fails, the call
is repeated with another DataNode, as in HDFS's Java client.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import requests
import urllib3
from hdfs import HdfsError, InsecureClient
from requests.adapters import HTTPAdapter

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop import http_session
from dlobd.hadoop.failures import reason

__all__ = ["Client", "HdfsError", "Unreachable", "block_locations", "take", "words"]

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_S = {"NameNode": 20.0, "DataNode": 60.0}
"""Timeouts between two bytes of an answer. A NameNode answers from memory; a DataNode may write to a slow disk."""


class Unreachable(HdfsError):  # type: ignore[misc]  # the package has no types
    """Error of a daemon that cannot be reached, or does not answer in time."""

    def __init__(self, daemon: str, address: str, how: str) -> None:
        super().__init__(f"the {daemon} at {address} {how}")
        self.daemon = daemon
        self.address = address
        self.how = how


def block_locations(url: str, user: str, path: str, length: int) -> Any:
    """Return WebHDFS's answer to GET_BLOCK_LOCATIONS of a whole file. Raises requests.RequestException."""
    query: dict[str, str | int] = {"op": "GET_BLOCK_LOCATIONS", "user.name": user, "offset": 0, "length": length}
    return http_session.get(f"{url}/webhdfs/v1{path}", query, timeout=5).json()


def words(error: Exception) -> str:
    """Return the message of an error without the Java stack that HDFS may append."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if not line.startswith(("at org.", "at java")))


class _Connection(urllib3.connection.HTTPConnection):
    """Connection to a daemon. urllib3 would keep the short timeout for connecting while it sends a request."""

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(ANSWER_S["DataNode"])


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _Adapter(HTTPAdapter):
    """Adapter that can time both legs of a call and identifies the daemon that does not answer."""

    def __init__(self, namenode: str, timed: bool) -> None:
        super().__init__()
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool}
        self._namenode = namenode
        self._timed = timed
        self.datanode = ""  # address of the last request's DataNode

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        url = urlsplit(request.url or "")
        leg = "NameNode" if url.netloc == self._namenode else "DataNode"
        if leg == "DataNode":
            self.datanode = str(url.netloc)
        operation = parse_qs(str(url.query)).get("op", ["?"])[0]
        kwargs["timeout"] = (CONNECT_S, ANSWER_S[leg])
        kind = kinds.NAMENODE_CALL if leg == "NameNode" else kinds.DATANODE_CALL
        span: AbstractContextManager[object] = tracing.span(kind, detail=operation) if self._timed else nullcontext()
        try:
            with span:
                return super().send(request, *args, **kwargs)
        except requests.RequestException as error:
            if leg == "DataNode" and not self._namenode_answers():
                # a DataNode that writes also waits for the NameNode, which is then the cause
                raise Unreachable(
                    "NameNode", self._namenode, reason(requests.Timeout(), CONNECT_S, ANSWER_S["NameNode"])
                ) from error
            raise Unreachable(leg, str(url.netloc), reason(error, CONNECT_S, ANSWER_S[leg])) from error

    def _namenode_answers(self) -> bool:
        query = "qry=java.lang:type=Runtime"
        try:
            http_session.get(f"http://{self._namenode}/jmx?{query}", timeout=(CONNECT_S, ANSWER_S["NameNode"]))
        except requests.Timeout:
            return False
        except requests.RequestException:
            pass  # the NameNode is dead; requests to it report this
        return True


class Client(InsecureClient):  # type: ignore[misc]  # the package has no types
    """The package's client of the NameNode at `url`, such as http://127.0.0.1:9870. Its session can add parameters to
    requests. Set `timed` to False for polls, which must not count as HDFS time."""

    def __init__(self, url: str, user: str, timed: bool = True) -> None:
        self.session = http_session.session()
        self.given_up: dict[str, Unreachable] = {}  # excluded DataNodes, by their addresses for block transfers
        self.adapter = _Adapter(str(urlsplit(url).netloc), timed)
        self.session.mount("http://", self.adapter)
        super().__init__(url, user=user, session=self.session)

    def ask(self, path: str, purpose: str, operation: Callable[[], T]) -> T:
        """Repeat an operation on a file until a DataNode answers, and return its result. A DataNode that did not answer
        is excluded from further attempts."""
        while True:
            try:
                with self._without_given_up():
                    return operation()
            except Unreachable as error:
                self._give_up(error, path, purpose)
            except HdfsError as error:
                last = next(reversed(self.given_up.values()), None)
                if last is None or error.exception != "IOException":
                    raise
                # the NameNode has no other DataNode with this file
                how = f"{last.how}, and no other DataNode has {path}"
                raise Unreachable(last.daemon, last.address, how) from error

    def _give_up(self, error: Unreachable, path: str, purpose: str) -> None:
        transfer = self.transfer_address(error.address) if error.daemon == "DataNode" else None
        if transfer is None or transfer in self.given_up:
            raise error
        self.given_up[transfer] = error
        tracing.instant(kinds.DATANODE_GIVEN_UP, address=error.address, how=error.how, path=path, purpose=purpose)

    @contextmanager
    def _without_given_up(self) -> Iterator[None]:
        params: Any = self.session.params
        params["excludedatanodes"] = ",".join(self.given_up) or None  # requests omit a parameter that is None
        try:
            yield
        finally:
            del params["excludedatanodes"]

    def transfer_address(self, http_address: str) -> str | None:
        """Return the address for block transfers of the DataNode at `http_address`, according to the NameNode.

        Returns `http_address` if the NameNode does not list the DataNode, which it then cannot choose again. Returns
        None if the NameNode does not answer."""
        query = {"qry": "Hadoop:service=NameNode,name=NameNodeInfo"}
        try:
            answer = self.session.get(f"{self.url}/jmx", params=query).json()
        except (HdfsError, requests.RequestException):
            return None
        beans = answer.get("beans") or [{}]
        if "LiveNodes" not in beans[0]:
            return None
        nodes: dict[str, dict[str, str]] = json.loads(beans[0]["LiveNodes"])
        host, _, port = http_address.rpartition(":")
        for name, node in nodes.items():
            # redirects contain the host name, the NameNode's list also its address
            ip, _, info_port = node["infoAddr"].rpartition(":")
            if info_port == port and host in (ip, name.rpartition(":")[0]):
                return str(node["xferaddr"])
        return http_address


def take(client: Client, reader: Any, size_bytes: int | None) -> bytes:
    """Read the next bytes of a DataNode's answer. Raises Unreachable."""
    try:
        data: bytes = reader.read(size_bytes)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(
            "DataNode", client.adapter.datanode, reason(error, CONNECT_S, ANSWER_S["DataNode"])
        ) from error
    return data
