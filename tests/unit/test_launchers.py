"""What all launchers share: roles, the cause of a failure in one line, and the trainers' log lines at the driver."""

from __future__ import annotations

import io
import json
import pickle
from argparse import Namespace
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd import tracing
from dlobd.job.launchers import addresses, tfos, trainer_process
from dlobd.job.launchers.base import Node, place, role_of
from dlobd.job.launchers.failure import failure_line
from tests.jobs import SilentMarkers as Markers

PY4J = """\
An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent
failure: Lost task 0.0 in stage 1.0 (TID 2): {failure}
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
\tat py4j.GatewayConnection.run(GatewayConnection.java:238)
Caused by: {failure}
\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:621)
"""


@pytest.mark.parametrize(
    ("channel", "address"),
    [("tcp@lo", "127.0.0.1"), ("tcp@127.0.0.0/8", "127.0.0.1"), ("tcp", "127.0.0.2"), ("shm", "127.0.0.2")],
)
def test_a_rank_is_found_at_the_channels_device(monkeypatch: pytest.MonkeyPatch, channel: str, address: str) -> None:
    monkeypatch.setenv(addresses.CHANNEL, channel)
    monkeypatch.setenv(addresses.BIND_IP, "127.0.0.2")
    assert addresses.rank_address() == address


def test_ranks_and_causes_without_a_mark() -> None:
    peers = ("a:1", "b:2", "c:3")
    assert (Node("chief", 0, peers).rank, Node("chief", 0, peers).ranks) == (0, 3)
    assert [Node("worker", index, peers).rank for index in range(2)] == [1, 2]
    assert [Node(*role_of(rank), peers).rank for rank in range(3)] == [0, 1, 2]
    assert failure_line(Exception(PY4J.format(failure="x")), Markers("rank 1: boom")) == "rank 1: boom"
    assert failure_line(Exception("\n  something \nelse"), Markers()) == "something"
    assert failure_line(KeyboardInterrupt(), Markers()) == "KeyboardInterrupt"  # type: ignore[arg-type]


PEERS = ["a:1", "b:2", "c:3"]


def _trained(told: list[Any]) -> Callable[[Any, Node], None]:
    return lambda job, node: told.append((job, node))


def test_every_launcher_tells_a_rank_of_its_peers_by_one_path(monkeypatch: pytest.MonkeyPatch) -> None:
    job = SimpleNamespace(exchange="tf-ring")
    told: list[Any] = []
    sink = io.BytesIO()
    trainer_process.assign(sink, pickle.dumps(("main", "job")), 2, PEERS, fed=False)
    sink.seek(0)
    message = pickle.loads(trainer_process.read(sink) or b"")
    node = place(job, message["rank"], message["peers"], None)
    cluster = {"worker": PEERS[1:], "chief": PEERS[:1], "ps": ["d:4"]}
    context = SimpleNamespace(job_name="worker", task_index=1, cluster_spec=cluster)
    monkeypatch.setattr(tracing, "identify", lambda role, index: told.append((role, index)))
    tfos._TfosMain(_trained(told), fed=False, ahead=False)(Namespace(job=job), context)
    assert told == [("worker", 1), (job, node)]
    assert (node.rank, node.ranks, node.peers, node.feed) == (2, 3, tuple(PEERS), None)
    config = json.loads(node.environment["TF_CONFIG"])
    assert config == {"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("Exception: trainer process 7 died: killed by signal 9", "died: killed by signal 9"),
        ("ExecutorLostFailure (executor 2 exited) Reason: Container marked as failed", "Reason: Container marked"),
        ("java.lang.RuntimeException: bad record", "RuntimeException: bad record"),
        (
            "x.SparkException:\nError from python worker:\n  dlobd: job failed: node n7 has no python3.11",
            "node n7 has no python3.11",
        ),
    ],
)
def test_the_cause_is_one_line_out_of_three_stack_traces(failure: str, said: str) -> None:
    line = failure_line(Exception(PY4J.format(failure=failure)), Markers())
    assert said in line
    assert "\n" not in line
