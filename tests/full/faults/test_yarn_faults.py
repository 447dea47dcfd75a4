"""Faults of YARN's daemons, and of what it is asked for, on the embedded cluster.

Each time: an end in bounded time, one line that blames the right layer, the evidence kept, no process left.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dlobd.faults import queue_filler, sigstop
from dlobd.hadoop import webhdfs
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.state import read_state
from dlobd.process_id import ProcessId
from tests.cluster.conftest import until, warnings_of
from tests.cluster.test_ways import explained
from tests.faults import END_S, LONG, kept, start_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480)]

ACCEPT_TIMEOUT_S = 15


@contextmanager
def no_node_reports(cluster: EmbeddedCluster) -> Iterator[None]:
    """The NodeManagers are stopped: they are there, and give the ResourceManager no heartbeat to allocate by."""
    state = read_state(cluster.work_dir)
    nodes = [process for name, process in state.processes.items() if name.startswith("nodemanager")]
    with sigstop.stopped(lambda: nodes) as done:
        assert done
        yield
    until(lambda: cluster.status().state == "running", 60, "the NodeManagers are back")


HOLDS: dict[str, tuple[Callable[[EmbeddedCluster], AbstractContextManager[object]], str]] = {
    "queue taken": (
        queue_filler.filled,
        r"Application is added to the scheduler and is not yet activated\. Queue's AM resource limit exceeded\..*",
    ),
    "no node reports": (no_node_reports, r"Application is .* resources to be assigned for AM\..*"),
}


@pytest.mark.parametrize("hold", HOLDS)
def test_an_application_that_yarn_never_starts(dlobd: Any, shared_cluster: EmbeddedCluster, hold: str) -> None:
    """Its own deadline ends it long before `timeout_s`; the line quotes the ResourceManager; the application is
    killed, so that it does not start later."""
    held, words = HOLDS[hold]
    with held(shared_cluster):
        ended = dlobd.run(f"accept_timeout_s={ACCEPT_TIMEOUT_S}", within_s=END_S)
    assert ended.code == 5
    said = f"dlobd: run failed: still ACCEPTED after accept_timeout_s = {ACCEPT_TIMEOUT_S} s; YARN's diagnostics: "
    assert re.fullmatch(re.escape(said) + words, ended.line), ended.line
    record = ended.bundle.read_json()
    assert sum(layer["ns"] for layer in record["layers"]) + record["unattributed_ns"] == record["wall_ns"] > 0
    assert "application accepted" in [event["event"] for event in record["startup"]]
    assert json.loads((ended.bundle.evidence / "rm-app.json").read_text())["state"] == "KILLED"


def daemon_of(work_dir: Path, name: str) -> ProcessId:
    """The process of one daemon of the cluster that runs in `work_dir`."""
    state = read_state(work_dir)
    return state.processes[name]


def test_a_nodemanager_that_dies(alone: Any) -> None:
    """YARN gives up its node; the line says that this NodeManager died, and with which executors. The next run is
    refused in one line, until the cluster was started again."""
    assert alone("cluster", "up").code == 0
    try:
        started = alone.start_run(LONG)
        started.trains()
        executor = started.container("YarnCoarseGrainedExecutorBackend", "--executor-id 1")
        name = Path(executor.environ()["LOG_DIRS"]).relative_to(alone.work_dir).parts[0]
        daemon_of(alone.work_dir, name).kill(signal.SIGKILL)
        ended = started.ended(END_S + 45)
        alone.is_quiet()
        assert ended.code == 5
        assert re.fullmatch(
            rf"dlobd: run failed: {name} died: YARN got no heartbeat from its node localhost:\d+ for 30 secs and "
            r"marked it lost, with .*executor 1 \(container_\w+\).*",
            ended.line,
        ), ended.line
        record = kept(ended.bundle, "failed")
        assert f"{name} died during the run" in record["warnings"]
        refused = alone.run()
        assert refused.code == 4
        assert refused.line == f"dlobd: The cluster in {alone.work_dir} lost {name}. Next: dlobd cluster down, then up"
    finally:
        assert alone("cluster", "down").code == 0


def test_logs_beyond_a_limit_of_yarn(alone: Any) -> None:
    """Span files count as logs of their container: the line names YARN's limit, and not the rank that lost its peer."""
    monitor = "yarn.nodemanager.container-log-monitor"
    limits = (f"{monitor}.enable=true", f"{monitor}.interval-ms=1000", f"{monitor}.dir-size-limit-bytes=600000")
    assert alone("cluster", "up", *(word for limit in limits for word in ("--conf", limit))).code == 0
    try:
        ended = alone.run(LONG, "exchange=ring", "input=read", "batch_size=20", within_s=END_S)
        assert ended.code == 5
        assert re.fullmatch(
            r"dlobd: run failed: executor [12] \(container_\w+\) was killed by YARN: its logs, with dlobd's span "
            rf"files, exceed {re.escape(monitor)}\.dir-size-limit-bytes; raise it, or record_every_steps",
            ended.line,
        ), ended.line
        kept(ended.bundle, "failed")
    finally:
        assert alone("cluster", "down").code == 0


def test_a_resourcemanager_that_dies_and_comes_back(dlobd: Any, shared_cluster: EmbeddedCluster) -> None:
    """The job goes on without it and is taken over by the next one: the run is good, its parts still sum, what both
    logged is one story, and a warning says what happened."""
    started = dlobd.start_run("epochs=20", "checkpoint_every_steps=1000000")
    started.trains()
    daemon_of(dlobd.work_dir, "resourcemanager").kill(signal.SIGKILL)
    start_again(shared_cluster, "resourcemanager")
    ended = started.ended(END_S + 60)
    assert ended.code == 0, ended.err
    record = ended.bundle.read_json()
    assert record["status"] == "ok"
    (warning,) = (line for line in record["warnings"] if "resourcemanager" in line)
    assert re.fullmatch(r"resourcemanager was restarted during the run: its log was silent for [\d.]+ s", warning), (
        warning
    )
    explained(ended.bundle)
    assert not [clip for clip in record["clips"] if clip["kind"] == "inconsistent"]
    assert json.loads((ended.bundle.evidence / "rm-app.json").read_text())["finalStatus"] == "SUCCEEDED"
    # containers that this ResourceManager gives out carry its epoch
    after = dlobd.run()
    assert after.code == 0, after.err
    explained(after.bundle)
    assert {path.name[:13] for path in (after.bundle.logs / "containers").iterdir()} == {"container_e01"}


def test_an_event_log_that_is_gone(dlobd: Any, shared_cluster: EmbeddedCluster) -> None:
    client = webhdfs.Client(shared_cluster.endpoints.webhdfs_url, shared_cluster.user, timed=False)
    started = dlobd.start_run()
    started.trains()
    client.delete("/spark-events", recursive=True)
    ended = started.ended(END_S)
    assert ended.code == 0, ended.err
    record = ended.bundle.read_json()
    assert warnings_of(record) == ["event log: File /spark-events does not exist."]
    assert not (ended.bundle.evidence / "event-log.jsonl").exists()
    explained(ended.bundle)


def test_a_killed_trainer_of_tensorflowonspark_as_published(dlobd: Any) -> None:
    started = dlobd.start_run(LONG, "launcher=tfos-stock")
    pid = started.trains()["worker"]
    os.kill(pid, signal.SIGKILL)
    ended = started.ended(END_S)
    assert ended.code == 5
    assert ended.line == f"dlobd: run failed: worker 0: trainer process {pid} died: killed by signal 9"
    kept(ended.bundle, "failed")
