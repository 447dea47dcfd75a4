"""Launchers and the job that they start: roles, failures, feeds, descriptions and markers."""

from __future__ import annotations

import io
import json
import os
import pickle
import threading
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.experiment import files
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.description import Job, Markers
from dlobd.job.launchers import addresses, barrier, distributor, failure, tfos, trainer_process
from dlobd.job.launchers.addresses import without_proxy
from dlobd.job.launchers.base import Node, place, role_of
from dlobd.job.launchers.failure import MemoryGroup, exit_status, failure_line
from dlobd.tracing.recorder import Recorder
from tests.jobs import SilentMarkers, job

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
    assert [role_of(rank) for rank in range(3)] == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert failure_line(Exception(PY4J.format(failure="x")), SilentMarkers("rank 1: boom")) == "rank 1: boom"
    assert failure_line(Exception("\n  something \nelse"), SilentMarkers()) == "something"
    assert failure_line(KeyboardInterrupt(), SilentMarkers()) == "KeyboardInterrupt"  # type: ignore[arg-type]


PEERS = ["a:1", "b:2", "c:3"]


def _trained(told: list[Any]) -> Callable[[Any, Node], None]:
    return lambda job, node: told.append((job, node))


def test_every_launcher_gives_a_rank_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (node.rank, node.peers, node.feed) == (2, tuple(PEERS), None)
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
    line = failure_line(Exception(PY4J.format(failure=failure)), SilentMarkers())
    assert said in line
    assert "\n" not in line


def fed(blocks: list[bytes], epochs: int) -> list[bytes]:
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as source, os.fdopen(write_fd, "wb") as sink:
        task = threading.Thread(target=barrier._feed, args=(sink, iter(blocks), epochs))
        task.start()
        feed, found = trainer_process.PipeFeed(source), []
        while (block := feed.next_block()) is not None:
            found.append(block)
        task.join(20)
    return found


@pytest.mark.parametrize("epochs", [1, 3])
def test_blocks_arrive_whole_and_in_order(epochs: int) -> None:
    blocks = [b"a" * 10, b"", os.urandom(3 << 20), b"end"]
    assert fed(blocks, epochs) == blocks * epochs


def test_a_feed_without_blocks_ends() -> None:
    assert fed([], 2) == []


def test_a_trainer_that_has_enough_closes_its_pipe() -> None:
    """Its task then feeds no more, in whichever epoch and however much is left, and notices at once."""
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as source, ThreadPoolExecutor(1) as tasks:
        sink = os.fdopen(write_fd, "wb")
        feeding = tasks.submit(barrier._feed, sink, iter([b"a", b"b" * (2 << 20)]), 10_000)
        feed = trainer_process.PipeFeed(source)
        assert [feed.next_block() for _ in range(3)] == [b"a", b"b" * (2 << 20), b"a"]
        feed.stop()
        with pytest.raises(BrokenPipeError):
            feeding.result(20)
        with suppress(BrokenPipeError):
            sink.close()


@pytest.mark.parametrize("cut", [3, 10])
def test_a_feeding_task_that_is_gone_is_an_error(cut: int) -> None:
    """An end without the end-of-feed mark, in a length or inside a block, is never taken for the end of the data."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, (trainer_process.LENGTH.pack(5) + b"abcde")[:cut])
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as source, pytest.raises(EOFError, match="Spark task"):
        trainer_process.PipeFeed(source).next_block()


def test_a_rank_gets_its_place_from_the_distributors_own_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["a:1", "b:2", "c:3"]}
    nodes: list[Node] = []
    for index in range(3):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}))
        distributor._run_main(lambda job, node: nodes.append(node), SimpleNamespace(exchange="tf-ring"))
    assert [node.rank for node in nodes] == [0, 1, 2]
    assert {node.peers for node in nodes} == {("a:1", "b:2", "c:3")}
    assert all(node.feed is None for node in nodes)


def test_it_has_no_feed() -> None:
    told: list[str] = []
    assert files.load("softmax-mnist-quick", ["launcher=distributor"], told.append).input == "read"
    assert told == ["implied by launcher=distributor: input=read"]
    unused: Any = None
    with pytest.raises(ValueError, match="has no feed"):
        distributor.DistributorLauncher().launch(unused, unused, unused, unused or object(), unused)  # type: ignore[arg-type]


V1 = {
    "proc/self/cgroup": "9:name=systemd:/docker/0a\n4:memory:/docker/0a\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1000 << 20}\n",
}
"""As a container with its own mount sees it: the path is the machine's."""

V2 = {
    "proc/self/cgroup": "0::/user.slice\n",
    "sys/fs/cgroup/user.slice/memory.events": "low 0\noom 3\noom_kill 1\noom_group_kill 0\n",
    "sys/fs/cgroup/user.slice/memory.max": "max\n",
}


OUT_OF_MEMORY = "by the kernel: out of memory in the control group of its host"


def tree(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def test_control_groups_of_both_versions(tmp_path: Path) -> None:
    assert MemoryGroup.read(tree(tmp_path / "v1", V1)) == MemoryGroup(2, 1000)
    assert MemoryGroup.read(tree(tmp_path / "v2", V2)) == MemoryGroup(1, None)
    assert MemoryGroup.read(tmp_path / "none") == MemoryGroup(None, None)


@pytest.mark.parametrize(
    ("code", "before", "words"),
    [
        (3, 0, "exit code 3"),
        (-15, 0, "killed by signal 15"),
        (-9, 2, "killed by signal 9"),
        (-9, 1, f"killed by signal 9 ({OUT_OF_MEMORY}, whose limit is 1000 MB)"),
    ],
)
def test_a_kill_by_the_kernel_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, before: int, words: str
) -> None:
    now = MemoryGroup.read(tree(tmp_path, V1))
    monkeypatch.setattr(failure.MemoryGroup, "read", lambda: now)
    assert exit_status(code, MemoryGroup(before, 1000)) == words


@pytest.fixture
def markers(tmp_path: Path) -> Markers:
    (tmp_path / "run" / "done").mkdir(parents=True)
    return Markers(job(tmp_path))


def test_a_job_survives_json_and_pickle(tmp_path: Path) -> None:
    told = job(tmp_path, seed=7)
    path = tmp_path / "job.json"
    path.write_text(told.to_json())
    assert Job.read(path) == told
    assert pickle.loads(pickle.dumps(told)) == told
    assert told.layout.record_bytes > 784


def test_a_job_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    values = json.loads(job(tmp_path).to_json())
    path.write_text(json.dumps({**values, "new": 1}))
    with pytest.raises(TypeError):
        Job.read(path)
    del values["workers"]
    path.write_text(json.dumps(values))
    with pytest.raises(TypeError):
        Job.read(path)


def test_markers_show_done_ranks_and_the_first_failure(markers: Markers, tmp_path: Path) -> None:
    assert markers.read() == (set(), None)
    markers.report_done(0, {"rank": 0, "steps": 3})
    markers.report_done(11, {"rank": 11})
    directory = tmp_path / "run" / "done"
    (directory / "rank-2.json").write_text("")
    assert markers.read() == ({0, 11}, None)
    assert json.loads((directory / "rank-0.json").read_text()) == {"rank": 0, "steps": 3}
    markers.report_failure("rank 1: RuntimeError: boom\n  at line 3")
    markers.report_failure("rank 0: peer is gone")
    assert markers.read() == ({0, 11}, "rank 1: RuntimeError: boom at line 3")


def test_a_done_marker_is_seen_when_it_is_whole_and_all_spans_are_on_disk(
    markers: Markers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may end a rank's process as soon as it sees the marker, so nothing may be left to write."""
    recorder = Recorder(tmp_path / "spans", "chief", threaded=False)
    monkeypatch.setattr(tracing, "_recorder", recorder)
    seen = []

    def rename(storage: LocalDirectory, path: str, to: str) -> None:
        spans = "".join(file.read_text() for file in (tmp_path / "spans").iterdir())
        seen.append((json.loads(Path(path).read_text()), markers.read()[0], kinds.WRITE_DONE_MARKER in spans))
        original(storage, path, to)

    original = LocalDirectory.rename
    monkeypatch.setattr(LocalDirectory, "rename", rename)
    markers.report_done(1, {"rank": 1})
    recorder.close()
    assert seen == [({"rank": 1}, set(), True)]
    assert markers.read()[0] == {1}


SPARE = "nodes,.internal"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, {}),
        ({"no_proxy": SPARE, "ftp_proxy": "p"}, {}),
        ({"http_proxy": "p"}, {"no_grpc_proxy": "10.0.0.1,::1"}),
        ({"https_proxy": "p", "no_proxy": SPARE}, {"no_grpc_proxy": f"{SPARE},10.0.0.1,::1"}),
        ({"grpc_proxy": "p", "no_proxy": "x", "no_grpc_proxy": SPARE}, {"no_grpc_proxy": f"{SPARE},10.0.0.1,::1"}),
    ],
)
def test_ranks_connect_without_a_proxy(environment: dict[str, str], found: dict[str, str]) -> None:
    """Only gRPC, only to the ranks; the user's exceptions stay."""
    assert without_proxy(["10.0.0.1:1", "10.0.0.1:2", "[::1]:3"], environment) == found
