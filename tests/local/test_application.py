"""The end of an application, asked of a ResourceManager and a NodeManager that answer over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dlobd.run.collect.application import await_end
from tests.web import answering

APPLICATION = "application_1795263970000_0001"
CONTAINER = "container_1795263970000_0001_01_000003"
RUNS = {"state": "RUNNING", "runningContainers": 3, "memorySeconds": 80}
LEAVES = {"state": "FINISHED", "runningContainers": 1, "memorySeconds": 65}
CHARGED = {"state": "FINISHED", "runningContainers": -1, "memorySeconds": 107}


@pytest.fixture
def hadoop() -> Iterator[Callable[..., str]]:
    """Serve answers of a ResourceManager and of a NodeManager in order, the last one repeatedly; return the URL."""
    with ExitStack() as opened:

        def serve(records: list[dict[str, Any]], containers: list[list[str]]) -> str:
            def answer(path: str) -> Any:
                if path.startswith(f"/ws/v1/cluster/apps/{APPLICATION}"):
                    return {"app": records.pop(0) if len(records) > 1 else records[0]}
                listed = containers.pop(0) if len(containers) > 1 else containers[0]
                return {"containers": {"container": [{"id": name, "state": "RUNNING"} for name in listed]}}

            return f"http://{opened.enter_context(answering(answer))}"

        yield serve


def test_the_record_is_read_when_every_container_is_charged(hadoop: Callable[..., str]) -> None:
    """An application is FINISHED some milliseconds before the scheduler has charged its last container."""
    url = hadoop([RUNS, LEAVES, LEAVES, CHARGED], [[]])
    assert await_end(url, [url], APPLICATION, kill=False) == CHARGED


def test_containers_that_a_node_still_runs_are_awaited(hadoop: Callable[..., str]) -> None:
    """The ResourceManager has forgotten the application; its NodeManager has not yet ended the process."""
    later = {**CHARGED, "diagnostics": "asked again"}
    url = hadoop([CHARGED, CHARGED, later], [[CONTAINER], [CONTAINER.replace("0001_01", "0002_01"), CONTAINER], []])
    assert await_end(url, [url], APPLICATION, kill=False) == later
