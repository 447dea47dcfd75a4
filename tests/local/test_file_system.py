"""The storage of a job on this machine's own directories; HDFS's keeps the same contract in every run on a cluster."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dlobd.hadoop import webhdfs
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import LocalDirectory, WebHdfs


@pytest.fixture
def top(tmp_path: Path) -> str:
    return str(tmp_path)


def test_what_is_written_is_read_back(top: str) -> None:
    """Bytes, also a second time, with directories made on the way; sizes and paths are as on the disk."""
    storage = LocalDirectory()
    storage.write(f"{top}/a/b/one", b"old", "test")
    storage.write(f"{top}/a/b/one", b"newer", "test", block_bytes=1 << 20)
    storage.write(f"{top}/a/two", b"", "test")
    assert storage.read(f"{top}/a/b/one", "test") == b"newer"
    assert storage.sizes(f"{top}/a/b") == {"one": 5}
    assert storage.files(f"{top}/a") == [f"{top}/a/b/one", f"{top}/a/two"]
    assert storage.exists(f"{top}/a/two")
    assert not storage.exists(f"{top}/a/three")


def test_create_is_for_the_first_one_only(top: str) -> None:
    storage = LocalDirectory()
    assert storage.create(f"{top}/done/failed", b"first")
    assert not storage.create(f"{top}/done/failed", b"second")
    assert storage.read(f"{top}/done/failed", "test") == b"first"


def test_a_file_gets_another_name(top: str) -> None:
    storage = LocalDirectory()
    storage.write(f"{top}/done/.one", b"all of it", "test")
    storage.rename(f"{top}/done/.one", f"{top}/done/one")
    assert storage.read(f"{top}/done/one", "test") == b"all of it"
    assert not storage.exists(f"{top}/done/.one")


def test_pieces_join_to_the_file(top: str) -> None:
    storage = LocalDirectory()
    data = bytes(range(256)) * 10
    storage.write(f"{top}/file", data, "test")
    pieces = list(storage.stream(f"{top}/file", 1000, "test"))
    assert [len(piece) for piece in pieces] == [1000, 1000, 560]
    assert b"".join(pieces) == data


def test_a_file_that_does_not_exist_is_an_expected_failure(top: str) -> None:
    storage = LocalDirectory()
    with pytest.raises(failures()):
        storage.read(f"{top}/none", "test")
    with pytest.raises(failures()):
        next(iter(storage.stream(f"{top}/none", 10, "test")))
    with pytest.raises(failures()):
        storage.sizes(f"{top}/none")


def test_a_namenode_that_refuses_is_named() -> None:
    with pytest.raises(webhdfs.Unreachable, match=r"^the NameNode at 127\.0\.0\.1:9 refused the connection$"):
        WebHdfs("http://127.0.0.1:9", "nobody").exists("/")


def test_a_namenode_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel takes the connection, but nothing comes within the patience: also for reads, writes and markers."""
    monkeypatch.setitem(webhdfs.ANSWER_S, "NameNode", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        storage = WebHdfs(f"http://{address}", "nobody")
        operations: list[Callable[[], object]] = [
            lambda: storage.read("/a", "test"),
            lambda: storage.write("/a", b"", "test"),
            lambda: storage.create("/a", b""),
            lambda: list(storage.stream("/a", 1, "test")),
            lambda: storage.sizes("/"),
        ]
        for operation in operations:
            with pytest.raises(webhdfs.Unreachable, match=f"^the NameNode at {address} did not answer within 0.2 s$"):
                operation()


class _SlowDataNode(BaseHTTPRequestHandler):
    """A daemon that redirects a request to itself, and then is slow to read."""

    def do_PUT(self) -> None:
        if "datanode" not in self.path:
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/datanode?op=CREATE")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        time.sleep(0.6)
        self.server.received = len(self.rfile.read(BODY_BYTES))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()


BODY_BYTES = 32 << 20
"""More than the sockets' buffers take."""


def test_a_datanode_that_reads_slowly_has_the_time_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "CONNECT_S", 0.2)
    with ThreadingHTTPServer(("127.0.0.1", 0), _SlowDataNode) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            WebHdfs(f"http://127.0.0.1:{server.server_port}", "nobody").write("/a", bytes(BODY_BYTES), "test")
        finally:
            server.shutdown()
    assert server.received == BODY_BYTES


def test_java_stacks_are_left_out_of_what_hdfs_said() -> None:
    said = webhdfs.HdfsError("Name node is in safe mode.\nIt was set.\n\tat org.apache.X.y(X.java:1)\n\tat java.z")
    assert webhdfs.words(said) == "Name node is in safe mode. It was set."
