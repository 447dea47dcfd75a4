"""The end of an application, asked of a ResourceManager and a NodeManager that answer over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dlobd.run.collect.application import await_end

APPLICATION = "application_1795263970000_0001"
CONTAINER = "container_1795263970000_0001_01_000003"
RUNS = {"state": "RUNNING", "runningContainers": 3, "memorySeconds": 80}
LEAVES = {"state": "FINISHED", "runningContainers": 1, "memorySeconds": 65}
CHARGED = {"state": "FINISHED", "runningContainers": -1, "memorySeconds": 107}


@pytest.fixture
def hadoop() -> Iterator[Callable[..., str]]:
    """Serves answers of a ResourceManager and of a NodeManager, in order, the last one again and again; the URL."""
    servers = []

    def serve(records: list[dict[str, Any]], containers: list[list[str]]) -> str:
        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith(f"/ws/v1/cluster/apps/{APPLICATION}"):
                    body: dict[str, Any] = {"app": records.pop(0) if len(records) > 1 else records[0]}
                else:
                    listed = containers.pop(0) if len(containers) > 1 else containers[0]
                    body = {"containers": {"container": [{"id": name, "state": "RUNNING"} for name in listed]}}
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_record_is_read_when_every_container_is_charged(hadoop: Callable[..., str]) -> None:
    """An application is FINISHED some milliseconds before the scheduler has charged its last container."""
    url = hadoop([RUNS, LEAVES, LEAVES, CHARGED], [[]])
    assert await_end(url, [url], APPLICATION, kill=False) == CHARGED


def test_containers_that_a_node_still_runs_are_awaited(hadoop: Callable[..., str]) -> None:
    """The ResourceManager has forgotten the application; its NodeManager has not yet ended the process."""
    later = {**CHARGED, "diagnostics": "asked again"}
    url = hadoop([CHARGED, CHARGED, later], [[CONTAINER], [CONTAINER.replace("0001_01", "0002_01"), CONTAINER], []])
    assert await_end(url, [url], APPLICATION, kill=False) == later
