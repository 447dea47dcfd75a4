"""TensorFlowOnSpark, prepared: importable, lazy, bound where it was told, and a dead trainer is noticed.

Each test is a process of its own, because preparing a process is for good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.job.launchers import tfos
from tests.recorded import read_all


def python(code: str, *arguments: object, **environment: str) -> list[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=110, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("there", [True, False])
def test_install_with_and_without_pkg_resources(there: bool) -> None:
    """TensorFlowOnSpark imports where setuptools brings pkg_resources and where it does not; one that is there stays,
    and the replacement is absent for all other modules."""
    code = """
import sys, types, importlib.machinery
there = sys.argv[1] == "True"
own = types.ModuleType("pkg_resources")
own.__spec__ = importlib.machinery.ModuleSpec("pkg_resources", None)
own.get_distribution = lambda name: types.SimpleNamespace(version="0")
own.DistributionNotFound = KeyError
sys.modules["pkg_resources"] = own if there else None  # None: as if it could not be found
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
tfos_compat.install()
from tensorflowonspark import TFCluster, TFNode, TFSparkNode
used = TFSparkNode.pkg_resources
print((used is own) == there, used.get_distribution("tensorflowonspark").version)
print(sys.modules.get("pkg_resources") is (own if there else None))
try:
    used.get_distribution("no-such-package-of-anybody")
except used.DistributionNotFound:
    print("not found")
except Exception as error:
    print(error)
"""
    said = python(code, there)
    assert said[0] == ("True 0" if there else "True 2.2.5")
    assert said[1] == "True"
    assert there or said[2] == "not found"


def test_tensorflow_is_not_imported_by_preparing() -> None:
    """Neither on the driver nor in a Python worker: that costs seconds, and belongs to the trainer."""
    code = """
import sys
from dlobd.job.launchers import tfos, tfos_compat
tfos_compat.install()
from tensorflowonspark import TFCluster, TFManager, TFNode, TFSparkNode, compat, reservation, util
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("tensorflow", "keras")))
print(compat.__name__, callable(compat.export_saved_model), compat.__spec__)
"""
    assert python(code) == ["[]", "tensorflowonspark.compat True None"]


def test_rdma_is_refused() -> None:
    """TensorFlow 2 has none: asking for it is an error instead of a silent TCP."""
    code = """
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFNode
for arguments, named in (((None, 1, True), {}), ((None,), {"rdma": True})):
    try:
        TFNode.start_cluster_server(*arguments, **named)
    except ValueError as error:
        print(error)
"""
    said = python(code)
    assert len(said) == 2
    assert all(line.startswith("rdma=True: TensorFlow 2 has no RDMA transport") for line in said)


def test_the_reservation_server_listens_only_where_it_was_told() -> None:
    """TFOS_BIND_IP names the one address; another address of the same machine is refused, and the server works."""
    code = """
import socket
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import reservation, util
server = reservation.Server(1)
host, port = server.start()
print(host, util.get_ip_address())
for address in ("127.0.0.2", "127.0.0.3"):
    with socket.socket() as probe:
        probe.settimeout(5)
        print(address, probe.connect_ex((address, port)) == 0)
client = reservation.Client((host, port))
client.register({"executor_id": 0})
print(client.await_reservations())
client.request_stop()
"""
    assert python(code, TFOS_BIND_IP="127.0.0.2") == [
        "127.0.0.2 127.0.0.2",
        "127.0.0.2 True",
        "127.0.0.3 False",
        "[{'executor_id': 0}]",
    ]


WATCH = """
import json, os, signal, sys, time
from argparse import Namespace
from dlobd import spans as kinds, tracing
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFManager, TFSparkNode
tracing.start(sys.argv[2], "python-worker")
TFSparkNode.TFSparkNode.mgr = TFManager.start(b"key", ["error"])
ends = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "well": lambda: None,
}
def trainer(tf_args, context):
    with tracing.span(kinds.TRAINER):
        ends[sys.argv[1]]()
told = []
class Markers:
    report_death = staticmethod(lambda cause: told.append("death: " + cause))
    report_failure = staticmethod(lambda cause: told.append("failure: " + cause))
process = TFSparkNode.multiprocessing.Process(target=trainer, args=(Namespace(markers=Markers), None))
process.start()
process.join()
deadline = time.monotonic() + 5
while not told and process.exitcode and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.2 if not process.exitcode else 0)
queue = TFSparkNode.TFSparkNode.mgr.get_queue("error")
queued = []
while not queue.empty():
    queued.append(queue.get())
print(json.dumps({"pid": process.pid, "told": told, "queued": queued}))
"""


@pytest.mark.parametrize(
    ("end", "how", "kind"), [("kill", "killed by signal 9", "death"), ("exit", "exit code 3", "failure")]
)
def test_a_killed_trainer_is_reported(tmp_path: Path, end: str, how: str, kind: str) -> None:
    """Its death reaches the job and TensorFlowOnSpark's error queue in one line, and stands in its parent's spans. Only
    a signal outranks what ranks say of themselves."""
    (line,) = python(WATCH, end, tmp_path)
    found = json.loads(line)
    cause = f"trainer process {found['pid']} died: {how}"
    assert found["told"] == [f"{kind}: {cause}"]
    assert found["queued"] == [cause]
    parent = next(p for p in read_all(tmp_path) if not p.forked)
    died = parent.instant("trainer died")
    assert died.attrs == {"cause": cause, "pid": found["pid"], "code": -9 if end == "kill" else 3}
    assert parent.named("fork trainer")
    assert not any(span.name == "trainer" for span in parent.spans)


def test_a_trainer_that_ends_well_is_not_reported(tmp_path: Path) -> None:
    (line,) = python(WATCH, "well", tmp_path)
    found = json.loads(line)
    assert (found["told"], found["queued"]) == ([], [])
    child = next(p for p in read_all(tmp_path) if p.process.pid == found["pid"])
    assert child.forked
    assert [(span.name, span.truncated) for span in child.spans] == [("trainer", False)]


def test_the_queue_is_timed_at_the_feeding_end(tmp_path: Path) -> None:
    """Each block has a span while Spark reads it and one while TensorFlowOnSpark puts it, which may block; afterwards
    the moment is noted from which on only the trainer is awaited."""
    code = """
import sys
from dlobd import tracing
from dlobd.job.launchers.tfos import FeedTask
tracing.start(sys.argv[1], "python-worker", threaded=False)
def put_all(blocks):
    return [len(block) for block in blocks]
print(FeedTask(put_all, 7)(iter([b"abc", b"d"])))
"""
    assert python(code, tmp_path) == ["[3, 1]"]
    (process,) = read_all(tmp_path)
    assert [span.name for span in process.spans] == [
        "feed task",
        "read block",
        "put",
        "read block",
        "put",
        "read block",
    ]
    task, *inner = process.spans
    assert [span.attrs["bytes"] for span in process.named("put")] == [3, 1]
    assert all(span.parent == task.id and not span.truncated for span in inner)
    exhausted = process.instant("feed exhausted")
    assert exhausted.attrs == {"blocks": 2, "join_poll_ns": 7}
    assert inner[-1].end_ns <= exhausted.at_ns <= task.end_ns


def test_calls_of_the_driver_are_wrapped_once(tmp_path: Path) -> None:
    """Preparing the driver twice does not measure twice, and TFCluster's sleeps carry their cause and their limit."""
    code = """
import sys
from dlobd import spans as kinds, tracing
from dlobd.job.launchers import tfos, tfos_compat
tfos_compat.install()
from tensorflowonspark import TFCluster, TFSparkNode, reservation
for _ in range(2):
    tfos.record_driver(TFSparkNode, 0)
tracing.start(sys.argv[1], "driver")
tfos.NamedSleep(kinds.TFCLUSTER_SHUTDOWN_POLL).sleep(0.02)
tfos.NamedSleep(kinds.TFCLUSTER_SHUTDOWN_POLL, at_most_s=0.01).sleep(5)
server = reservation.Server(1)
server.reservations.add({"executor_id": 0})
server.await_reservations(None)
print(type(TFSparkNode.train({}, {}, 1)).__name__, type(TFSparkNode.train({}, {}, 1)._inner).__name__)
"""
    assert python(code, tmp_path) == ["FeedTask function"]
    (process,) = read_all(tmp_path)
    assert [span.name for span in process.spans] == ["sleep", "sleep", "await reservations"]
    *sleeps, waiting = process.spans
    causes = [sleep.wait["cause"] for sleep in sleeps]
    assert causes == [f"TensorFlowOnSpark TFCluster.shutdown poll (sleep {s} s)" for s in ("0.02", "0.01")]
    assert sleeps[0].wait["cause_period_ns"] >= 20_000_000
    assert sleeps[1].end_ns - sleeps[1].start_ns < 4 * 10**9
    assert waiting.wait["waits_for"] == ("@last-reservation",)


def test_waits_end_when_what_they_wait_for_is_there() -> None:
    """The reservations, at both ends, and the feed's join; a timeout and an error still end them as published."""
    code = """
import sys, threading, time
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFSparkNode, reservation
def waited_s():
    server = reservation.Server(1)
    address = server.start()
    client, other = reservation.Client(address), reservation.Client(address)  # a client is not thread-safe
    threading.Timer(0.3, other.register, [{"executor_id": 7}]).start()
    began = time.monotonic()
    print(server.await_reservations(None)[0]["executor_id"], client.await_reservations()[0]["executor_id"])
    return time.monotonic() - began
print(min(waited_s() for _ in range(3)) < 0.9)  # as published, it sleeps for a second
class Context:
    def cancelAllJobs(self): print("cancelled")
    def stop(self): print("stopped")
try:
    reservation.Server(1).await_reservations(Context(), {"error": "x"})
except SystemExit as error:
    print(error.code)
try:
    reservation.Server(1).await_reservations(Context(), timeout=0.2)
except Exception as error:
    print(error)
join = TFSparkNode.Thread(target=time.sleep, args=(0.3,))
join.start()
began = time.monotonic()
TFSparkNode.time.sleep(20)
print(join.is_alive(), time.monotonic() - began < 10)
began = time.monotonic()
TFSparkNode.time.sleep(0.2)
print(time.monotonic() - began >= 0.2)
"""
    assert python(code, TFOS_BIND_IP="127.0.0.1", TFOS_SERVER_HOST="127.0.0.1") == [
        "7 7",
        "7 7",
        "7 7",
        "True",
        "cancelled",
        "stopped",
        "1",
        "1 nodes were asked for, 0 nodes registered with TensorFlowOnSpark",
        "False True",
        "True",
    ]


def test_a_get_of_a_script_says_how_many_rows_it_got(tmp_path: Path) -> None:
    """Also one with an input mapping, and the last one, which got none: so it is known which puts it waited for."""
    code = """
import sys
from dlobd import tracing
from dlobd.job.user import hooks
tracing.start(sys.argv[1], "worker")
hooks.prepare_daemon("tfos")
from tensorflowonspark import TFManager, TFNode
manager = TFManager.start(b"key", ["input", "output", "error"])
queue = manager.get_queue("input")
for row in ([1, 2], [3, 4], [5, 6], None):
    queue.put(row, block=True)
feed = TFNode.DataFeed(TFManager.connect(manager.address, b"key"), input_mapping={"a": "x", "b": "y"})
for _ in range(2):
    print(feed.next_batch(2))
manager.shutdown()
tracing.flush()
"""
    said = python(code, tmp_path)
    assert said == ["{'x': [1, 3], 'y': [2, 4]}", "{'x': [5], 'y': [6]}"]
    (process,) = [found for found in read_all(tmp_path) if found.named("get")]
    assert [span.attrs["items"] for span in process.named("get")] == [2, 1]


def test_the_queues_keep_their_promises() -> None:
    """Blocks pass the manager's process in their order; the feed's join ends with the last, and not before; a get gives
    up in time; DataFeed ends at the end of the feed. No item passes through a pipe inside of the manager."""
    code = """
import threading
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFManager, TFNode
manager = TFManager.start(b"key", ["input", "output", "error"])
queue = manager.get_queue("input")
for block in (b"a" * 100_000, b"b", None):
    queue.put(block, block=True)
join = threading.Thread(target=queue.join)
join.start()
feed = TFNode.DataFeed(TFManager.connect(manager.address, b"key"))
print([len(feed.next_batch(1)[0]) for _ in range(2)], feed.should_stop())
join.join(0.2)
print(join.is_alive(), feed.next_batch(1), feed.should_stop())
join.join(20)
print(join.is_alive(), manager.get_queue("error").empty())
try:
    queue.get(block=True, timeout=0.1)
except Exception as error:
    print(type(error).__name__)
print(type(TFManager.qdict["input"]).__module__)
manager.shutdown()
"""
    assert python(code) == ["[100000, 1] False", "True [] True", "False True", "Empty", "queue"]


@pytest.mark.parametrize(
    ("stops_after", "reported_after", "early", "fed"),
    [(99, 99, False, [7]), (99, 99, True, [1] * 7), (3, 99, True, [1] * 3), (99, 4, True, [1] * 4), (3, 3, False, [7])],
)
def test_epochs_are_fed_until_no_more_are_wanted(
    stops_after: int, reported_after: int, early: bool, fed: list[int]
) -> None:
    """All in one job where nothing ends training early; else one by one, until a feed task asks the server to stop,
    or a rank has reported that it is done."""
    epochs: list[int] = []

    class Cluster:
        @property
        def server(self) -> Any:
            return SimpleNamespace(done=len(epochs) >= stops_after)

        def train(self, blocks: Any, count: int, feed_timeout: int) -> None:
            epochs.append(count)

    done: Any = SimpleNamespace(finished=lambda: {1} if len(epochs) >= reported_after else set())
    blocks: Any = None
    tfos._train(Cluster(), blocks, 7, done, may_end_early=early)
    assert epochs == fed


def test_the_daemon_measures_nothing_outside_a_container() -> None:
    code = """
import sys, types
daemon = types.ModuleType("pyspark.daemon")
daemon.manager = lambda: print("manager")
sys.modules["pyspark.daemon"] = daemon
from dlobd.job.launchers import worker_daemon
worker_daemon.serve(lambda: print("prepared"))
"""
    assert python(code, LOG_DIRS="") == ["prepared", "manager"]


def test_the_daemon_records_its_own_start_in_the_containers_log_directory(tmp_path: Path) -> None:
    code = """
import os, sys, types
daemon = types.ModuleType("pyspark.daemon")
daemon.manager = lambda: print(len(os.listdir("/proc/self/task")))
sys.modules["pyspark.daemon"] = daemon
from dlobd.job.launchers import worker_daemon
worker_daemon.serve()
"""
    first = tmp_path / "log 0"
    assert python(code, LOG_DIRS=f"{first},{tmp_path / 'log1'}") == ["1"]
    (process,) = read_all(first)
    assert (process.process.role, process.forked) == ("python-worker", False)
    assert process.spans[0].layer == "spark"
    assert process.instant("python daemon up") is not None
    assert not (tmp_path / "log1").exists()


def test_a_start_task_is_the_launchers_from_its_begin_to_its_end(tmp_path: Path) -> None:
    """As with `tfos-stock`: what TensorFlowOnSpark does between the calls that have a span is not Spark's."""
    code = f"""
import sys
from dlobd import tracing
tracing.start({str(tmp_path)!r}, "python-worker")
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFSparkNode
from dlobd.job.launchers.tfos import record_driver
TFSparkNode.run = lambda *args, **kwargs: lambda executor_ids: [*executor_ids]
record_driver(TFSparkNode, join_poll_ns=0)
record_driver(TFSparkNode, join_poll_ns=0)
import pickle
task = pickle.loads(pickle.dumps(type(TFSparkNode.run())))
print(task.__name__, TFSparkNode.run()([7]))
"""
    assert python(code) == ["StartTask [7]"]
    (process,) = read_all(tmp_path)
    assert [(span.layer, span.name) for span in process.spans if span.name == "start task"] == [
        ("launcher", "start task")
    ]
