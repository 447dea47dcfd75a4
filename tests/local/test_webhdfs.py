"""What a client of HDFS asks the NameNode about a DataNode that does not answer it, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dlobd.hadoop import webhdfs

LIVE = {"localhost:9866": {"infoAddr": "127.0.0.2:9864", "xferaddr": "127.0.0.2:9866"}}


class NameNode(BaseHTTPRequestHandler):
    """Answers /jmx as a NameNode with one DataNode."""

    def do_GET(self) -> None:
        """One bean, whose list of DataNodes is JSON in JSON."""
        body = json.dumps({"beans": [{"LiveNodes": json.dumps(LIVE)}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def namenode() -> Iterator[str]:
    """Its address."""
    with HTTPServer(("127.0.0.1", 0), NameNode) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_datanode_that_is_alive_is_named_by_its_transfer_address(namenode: str) -> None:
    """So that the NameNode can be told to name another one: by address, or by the name that a redirect had."""
    client = webhdfs.connect(namenode, "somebody")
    with client.session:
        assert client.transfer_address("127.0.0.2:9864") == "127.0.0.2:9866"
        assert client.transfer_address("localhost:9864") == "127.0.0.2:9866"


def test_a_datanode_that_was_given_up_meanwhile_needs_no_exclusion(namenode: str) -> None:
    """It died, for the NameNode, while its client waited for it: another one is asked all the same."""
    client = webhdfs.connect(namenode, "somebody")
    with client.session:
        assert client.transfer_address("127.0.0.3:9864") == "127.0.0.3:9864"


def test_a_namenode_that_is_gone_says_nothing() -> None:
    """Nobody listens at that port."""
    client = webhdfs.connect("http://127.0.0.1:9", "somebody")
    with client.session:
        assert client.transfer_address("127.0.0.3:9864") is None
