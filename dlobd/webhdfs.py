"""HDFS over WebHDFS, with both legs of every call timed: the NameNode that locates, the DataNode that streams.

The client is the `hdfs` package's; only its HTTP adapter is ours, because an adapter sees each leg of a redirected
call apart, which the package's own interface does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from hdfs import HdfsError, InsecureClient
from requests.adapters import HTTPAdapter

from dlobd import trace

__all__ = ["HdfsError", "connect", "read", "stream", "write"]

TIMEOUT_S = (5.0, 60.0)
"""To connect, and between two bytes."""


class _TimedAdapter(HTTPAdapter):
    def __init__(self, namenode: str) -> None:
        super().__init__()
        self._namenode = namenode

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        url = urlsplit(request.url or "")
        leg = "NameNode" if url.netloc == self._namenode else "DataNode"
        operation = parse_qs(str(url.query)).get("op", ["?"])[0]
        with trace.span("hdfs", f"{operation} {leg}"):
            return super().send(request, *args, **kwargs)


def connect(url: str, user: str, timed: bool = True) -> InsecureClient:
    """A client of the NameNode at `url`, for example http://127.0.0.1:9870.

    Args:
        timed: False for polls: their time is the wait's, not HDFS's.
    """
    session = requests.Session()
    if timed:
        session.mount("http://", _TimedAdapter(urlsplit(url).netloc))
    return InsecureClient(url, user=user, session=session, timeout=TIMEOUT_S)


def write(client: InsecureClient, path: str, data: bytes, purpose: str, block_bytes: int | None = None) -> None:
    """Writes one file, replacing it.

    Args:
        purpose: what the report lists it under, for example "checkpoint".
        block_bytes: HDFS block size of the file; None takes the cluster's.

    Raises:
        HdfsError: the NameNode or a DataNode refused.
    """
    with trace.span("hdfs", f"write {purpose}", path=path, bytes=len(data), purpose=purpose):
        client.write(path, data, overwrite=True, blocksize=block_bytes)


def read(client: InsecureClient, path: str, purpose: str) -> bytes:
    """Reads one whole file.

    Raises:
        HdfsError: the file does not exist, or a DataNode failed.
    """
    with trace.span("hdfs", f"read {purpose}", path=path, purpose=purpose) as span:
        with client.read(path) as reader, trace.span("hdfs", "stream"):
            data: bytes = reader.read()
        span.note(bytes=len(data))
    return data


def stream(client: InsecureClient, path: str, piece_bytes: int, purpose: str) -> Iterator[bytes]:
    """The file in pieces of `piece_bytes`; the last one may be shorter. Each piece's wait for bytes is a span.

    No span is open while the caller has a piece: a generator may be resumed by another thread.

    Raises:
        HdfsError: the file does not exist, or a DataNode failed.
    """
    with client.read(path) as reader:
        while True:
            with trace.span("hdfs", "stream", path=path, purpose=purpose) as span:
                piece: bytes = reader.read(piece_bytes)
                span.note(bytes=len(piece))
            if not piece:
                return
            yield piece
