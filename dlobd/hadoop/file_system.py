"""Storage of a job's files behind one interface: HDFS over WebHDFS, or directories of this machine.

The same trainer runs on a cluster and as plain processes. Access to local files is attributed to TensorFlow, as in any
job without HDFS.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop import webhdfs

Data = bytes | Iterable[bytes]
"""Content of a file, whole or in pieces. A retried write iterates again, so an iterator is not allowed."""


class WebHdfs:
    """The `Storage` of HDFS at `url`, for example http://127.0.0.1:9870, as `user`.

    Paths are absolute; `purpose` names an operation in the report, for example "checkpoint". Methods raise Unreachable
    if the NameNode or all DataNodes of a file do not answer, HdfsError if one refuses.

    Args:
        replication: replicas of written files; None: the cluster's default.
    """

    def __init__(self, url: str, user: str, replication: int | None = None) -> None:
        self._client = webhdfs.Client(url, user)
        self._untimed = webhdfs.Client(url, user, timed=False)
        self._replication = replication

    def write(self, path: str, data: Data, purpose: str, block_bytes: int | None = None) -> None:
        """Write or replace a file and create its directories. `block_bytes` is its block size in HDFS."""
        sent = 0

        def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
            nonlocal sent
            sent = 0
            for piece in pieces:
                sent += len(piece)
                yield piece

        def whole() -> None:
            body = data if isinstance(data, bytes) else counted(data)
            self._client.write(path, body, overwrite=True, blocksize=block_bytes, replication=self._replication)

        known: dict[str, Any] = {"bytes": len(data)} if isinstance(data, bytes) else {}
        with tracing.span(kinds.WRITE_FILE, detail=purpose, path=path, purpose=purpose, **known) as span:
            self._client.ask(path, purpose, whole)
            if not known:
                span.note(bytes=sent)

    def create(self, path: str, data: bytes) -> bool:
        """Write a new file; return False if it exists."""
        write = partial(self._client.write, path, data, overwrite=False, replication=self._replication)
        try:
            self._client.ask(path, "marker", write)
        except webhdfs.Unreachable:
            raise
        except webhdfs.HdfsError:
            if not self.exists(path):
                raise
            return False
        return True

    def rename(self, path: str, to: str) -> None:
        """Rename a file atomically to a name that does not exist."""
        self._client.rename(path, to)

    def read(self, path: str, purpose: str) -> bytes:
        def whole() -> bytes:
            with self._client.read(path) as reader, tracing.span(kinds.STREAM):
                return webhdfs.take(self._client, reader, None)

        with tracing.span(kinds.READ_FILE, detail=purpose, path=path, purpose=purpose) as span:
            data = self._client.ask(path, purpose, whole)
            span.note(bytes=len(data))
        return data

    def stream(self, path: str, piece_bytes: int, purpose: str) -> Iterator[bytes]:
        """Yield a file in pieces; the last may be shorter.

        No span is open at a `yield`, because another thread may resume the generator.
        """
        position = 0
        with ExitStack() as opened:
            reader = None

            def piece() -> bytes:
                nonlocal reader
                if reader is None:
                    # the span includes the client's work between the requests to NameNode and DataNode
                    with tracing.span(kinds.OPEN):
                        reader = opened.enter_context(self._client.read(path, offset=position))
                try:
                    with tracing.span(kinds.STREAM, path=path, purpose=purpose) as span:
                        data = webhdfs.take(self._client, reader, piece_bytes)
                        span.note(bytes=len(data))
                except webhdfs.Unreachable:
                    reader = None  # another DataNode continues at this position
                    raise
                return data

            while data := self._client.ask(path, purpose, piece):
                position += len(data)
                yield data

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes of a directory's entries by name. Records no span: used for polls and staged files."""
        # a file being written has length 0 until its first block is reported
        return {name: facts["length"] for name, facts in self._untimed.list(directory, status=True)}

    def files(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory."""
        with tracing.span(kinds.LIST_DIRECTORY, path=directory):
            return [f"{parent}/{name}" for parent, _, names in self._client.walk(directory) for name in names]

    def exists(self, path: str) -> bool:
        """Return True if the file or directory exists. Records no span."""
        return self._untimed.status(path, strict=False) is not None

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        self._client.makedirs(path)


class LocalDirectory:
    """The `Storage` of this machine's directories, with the methods of `WebHdfs`."""

    def write(self, path: str, data: Data, purpose: str, block_bytes: int | None = None) -> None:
        pieces = [data] if isinstance(data, bytes) else data
        known: dict[str, Any] = {"bytes": len(data)} if isinstance(data, bytes) else {}
        with tracing.span(kinds.WRITE_LOCAL_FILE, detail=purpose, path=path, purpose=purpose, **known) as span:
            target = Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            # atomic, because a concurrent reader must not see a part of the file
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            try:
                with open(part, "wb") as file:
                    written = sum(file.write(piece) for piece in pieces)
                part.replace(target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            if not known:
                span.note(bytes=written)

    def create(self, path: str, data: bytes) -> bool:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def rename(self, path: str, to: str) -> None:
        Path(path).rename(to)

    def read(self, path: str, purpose: str) -> bytes:
        with tracing.span(kinds.READ_LOCAL_FILE, detail=purpose, path=path, purpose=purpose) as span:
            data = Path(path).read_bytes()
            span.note(bytes=len(data))
        return data

    def stream(self, path: str, piece_bytes: int, purpose: str) -> Iterator[bytes]:
        with open(path, "rb") as file:
            while True:
                with tracing.span(kinds.READ_LOCAL_FILE, detail=purpose, path=path, purpose=purpose) as span:
                    piece = file.read(piece_bytes)
                    span.note(bytes=len(piece))
                if not piece:
                    return
                yield piece

    def sizes(self, directory: str) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in Path(directory).iterdir() if not path.name.startswith(".")}

    def files(self, directory: str) -> list[str]:
        return sorted(str(path) for path in Path(directory).rglob("*") if path.is_file())

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def make_directory(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)


Storage = WebHdfs | LocalDirectory
