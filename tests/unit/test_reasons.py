"""The reason of a failed run and its warnings, from captured runs with added evidence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.trust import reasons
from dlobd.trust.warnings import trouble

DATA = Path(__file__).parents[1] / "data"
(AM,) = (path.name for path in (DATA / "quick-run" / "logs" / "containers").glob("*_000001"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "quick-run", tmp_path / "run")
    change(tmp_path / "run", exit_code=1)
    return tmp_path / "run"


def change(run: Path, **window: Any) -> dict[str, Any]:
    path = run / "evidence" / "window.json"
    changed = {**json.loads(path.read_text()), **window}
    path.write_text(json.dumps(changed))
    return dict(changed)


def log(run: Path, name: str, message: str, before_exit_ns: int = 10**9, level: str = "WARN") -> None:
    """Add a line to a log, at this time before the end of the window."""
    at_ns = change(run)["exit_ns"] - before_exit_ns
    with (run / "logs" / name).open("a") as file:
        file.write(f"{at_ns} 2026-11-21T10:00:00.000 {level} x.Y: {message}\n")


def daemons(run: Path, *dead: str) -> None:
    found = [
        {"name": "namenode", "kind": "namenode", "host": "127.0.0.1", "ports": {}},
        {"name": "datanode-0", "kind": "datanode", "host": "127.0.0.1", "ports": {"data": 20004}},
        {"name": "resourcemanager", "kind": "resourcemanager", "host": "127.0.0.1", "ports": {}},
        {"name": "nodemanager-0", "kind": "nodemanager", "host": "127.0.0.1", "ports": {"rpc": 20008}},
        {"name": "nodemanager-1", "kind": "nodemanager", "host": "127.0.0.1", "ports": {"rpc": 20011}},
    ]
    listed = [{**daemon, "alive": daemon["name"] not in dead} for daemon in found]
    (run / "evidence" / "daemons.json").write_text(json.dumps(listed))


def in_cluster(run: Path) -> None:
    path = run / "evidence" / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "deploy_mode": "cluster"}))


@pytest.mark.parametrize(("dead", "how"), [(True, "died"), (False, "stopped responding")])
def test_a_lost_node_is_the_cause_with_its_executors(run: Path, dead: bool, how: str) -> None:
    started = re.compile(r"Start request for container\S+_000003")
    (node,) = (p.stem for p in run.rglob("nodemanager-?.log") if started.search(p.read_text()))
    address = f"localhost:{20008 if node == 'nodemanager-0' else 20011}"
    daemons(run, *[node] * dead)
    log(run, "daemons/resourcemanager.log", f"Expired:{address} Timed out after 30 secs")
    cause = reasons.failure(Evidence(run))
    assert cause.startswith(
        f"{node} {how}: YARN got no heartbeat from its node {address} for 30 secs and marked it lost, with "
    )
    assert "executor 2" in cause
    assert (f"{node} died during the run" in trouble(Evidence(run))) == dead


def test_an_unhealthy_node_is_the_cause_with_its_executors(run: Path) -> None:
    """YARN kills the containers of a node whose log disk is full; a rank then reports that another rank is gone."""
    started = re.compile(r"Start request for container\S+_000003")
    (node,) = (p.stem for p in run.rglob("nodemanager-?.log") if started.search(p.read_text()))
    addresses = {"nodemanager-0": "localhost:20008", "nodemanager-1": "localhost:20011"}
    daemons(run)
    why = "1/1 log-dirs usable space is below configured utilization percentage/no more usable space [ /logs : used "
    why += "space above threshold of 90.0% ]"
    (run / "logs" / "driver.stdout").write_text("dlobd: job failed: rank 0 (chief): ExchangeFailed: rank 1 is gone\n")
    message = "Node {} reported UNHEALTHY with details: {} "
    log(run, "daemons/resourcemanager.log", message.format("localhost:9", "another node"))
    assert reasons.failure(Evidence(run)) == "rank 0 (chief): ExchangeFailed: rank 1 is gone"
    log(run, "daemons/resourcemanager.log", message.format(addresses[node], why))
    cause = reasons.failure(Evidence(run))
    why = "/logs : used space above threshold of 90.0%"
    assert cause.startswith(f"YARN marked {node} unhealthy ({why}) and killed its containers: ")
    assert "executor 2" in cause


@pytest.mark.parametrize("source", ["daemons/nodemanager-1.log", "driver.stderr"])
@pytest.mark.parametrize(
    ("limit", "setting"), [("single log directory", "dir-size-limit-bytes"), ("total log", "total-size-limit-bytes")]
)
def test_logs_beyond_a_limit_of_yarn_are_the_cause(run: Path, source: str, limit: str, setting: str) -> None:
    container = AM.replace("_000001", "_000003")
    (run / "logs" / "driver.stdout").write_text("dlobd: job failed: rank 0 (chief): ExchangeFailed: rank 1 is gone\n")
    level, before = ("ERROR", "Lost executor 2 on localhost: ") if source == "driver.stderr" else ("WARN", "")
    text = f"{before}Container [pid=7,containerID={container}] is logging beyond the container {limit} limit."
    log(run, source, text, level=level)
    assert reasons.failure(Evidence(run)) == (
        f"executor 2 ({container}) was killed by YARN: its logs, with dlobd's span files, exceed "
        f"yarn.nodemanager.container-log-monitor.{setting}; raise it, or record_every_steps"
    )


def test_a_node_that_was_shut_down_is_named_from_the_driver_log(run: Path) -> None:
    container = AM.replace("_000001", "_000003")
    why = "Unknown executor exit code (-100) Diagnostics: Container released on a *lost* node."
    lost = f"Container marked as failed: {container} on host: node-2. Exit status: -100. Possible causes: {why}"
    log(run, "driver.stderr", f"Lost executor 2 on node-2: {lost}")
    log(run, "driver.stdout", "dlobd: job failed: rank 1 (worker): UnavailableError: Socket closed", 2 * 10**9)
    cause = reasons.failure(Evidence(run))
    assert cause == f"node node-2 was lost while the job ran, with executor 2 ({container})"


def test_a_death_before_the_node_was_lost_counts_more(run: Path) -> None:
    daemons(run, "nodemanager-1")
    log(run, "daemons/nodemanager-0.log", f"Exit code from container {AM} is : 137", before_exit_ns=10**12)
    log(run, "daemons/resourcemanager.log", "Expired:localhost:20011 Timed out after 30 secs")
    assert reasons.failure(Evidence(run)) == f"the ApplicationMaster ({AM}) was killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (None, f"the driver's JVM, which is the ApplicationMaster ({AM}) was killed by signal 9 (SIGKILL)"),
        ("User application exited with status 137", "the driver's Python was killed by signal 9 (SIGKILL)"),
    ],
)
def test_deaths_of_python_and_jvm_of_a_driver_in_a_container_differ(run: Path, words: str | None, cause: str) -> None:
    """Both end with the container's exit code 137: the JVM passes on that of its Python, and says so."""
    in_cluster(run)
    if words:
        log(run, f"containers/{AM}/stderr", words, before_exit_ns=2 * 10**9)
    log(run, "daemons/nodemanager-0.log", f"Exit code from container {AM} is : 137")
    assert reasons.failure(Evidence(run)) == cause


def test_the_error_of_a_driver_in_a_container_is_quoted(run: Path) -> None:
    in_cluster(run)
    log(run, f"containers/{AM}/stderr", "User application exited with status 1")
    log(run, "daemons/nodemanager-0.log", f"Exit code from container {AM} is : 1")
    (run / "logs" / "containers" / AM / "stdout").write_text("dlobd: job failed: rank 0 (chief): ValueError: no\n")
    assert reasons.failure(Evidence(run)) == "rank 0 (chief): ValueError: no"


JETTY = "at org.sparkproject.jetty.ee10.servlet.ServletHandler.initialize(ServletHandler.java:687)"
STREAMS = "at java.base/java.util.ArrayList$ArrayListSpliterator.forEachRemaining(ArrayList.java:1631)"


@pytest.mark.parametrize(
    ("error", "race"),
    [
        (f"java.util.ConcurrentModificationException {STREAMS} {JETTY}", True),
        (f"java.lang.IllegalStateException: STARTED {JETTY}", True),
        ("java.lang.IllegalStateException: Spark context stopped while waiting for backend at org.apache.x", False),
    ],
)
def test_the_race_condition_of_spark_differs_from_failures_of_the_job(run: Path, error: str, race: bool) -> None:
    change(run, exit_code=1)
    said = f"An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext. : {error}"
    (run / "logs" / "driver.stdout").write_text(f"dlobd: job failed: {said}\n")
    assert ("race condition" in reasons.failure(Evidence(run))) == race


NO_CLASS = """WARNING: Using incubator modules: jdk.incubator.vector
Error: Could not find or load main class space
Caused by: java.lang.ClassNotFoundException: space
"""
NO_FILE = """Exception in thread "main" java.io.FileNotFoundException: File file:/x does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.access(RawLocalFileSystem.java:980)
\t... 12 more
2367731392406 2026-11-22T07:13:24.874 INFO util.ShutdownHookManager: Shutdown hook called
26/11/22 07:13:24 WARN Client: gone
"""


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (NO_CLASS, "spark-submit exited with code 1: ClassNotFoundException: space"),
        (NO_FILE, "FileNotFoundException: File file:/x does not exist"),
        ("2367731392406 2026-11-22T07:13:24.874 INFO x.Y: started\n", "spark-submit exited with code 1"),
    ],
)
def test_a_submission_that_died_is_quoted(run: Path, stderr: str, said: str) -> None:
    (run / "logs" / "driver.stderr").write_text(stderr)
    (run / "logs" / "driver.stdout").write_text("")
    assert reasons.failure(Evidence(run)) == said


def test_yarns_refusal_of_a_request_is_quoted(run: Path) -> None:
    (stderr,) = (run / "logs" / "containers").glob("*_000001/stderr")
    words = "Cannot allocate containers. Requested resource type=[yarn.io/gpu], "
    said = f"org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException: Invalid resource request! {words}"
    stderr.write_text(f"{stderr.read_text()}\n{said}\n\tat org.apache.hadoop\n")
    asked = "Cannot allocate containers. Requested resource type=[yarn.io/gpu]"
    assert reasons.failure(Evidence(run)) == f"YARN refused the request for executors: {asked}"


def test_a_failed_run_with_yarn_status_succeeded_has_a_warning(run: Path) -> None:
    assert json.loads((run / "evidence" / "rm-app.json").read_text())["finalStatus"] == "SUCCEEDED"
    (warning,) = trouble(Evidence(run))
    assert warning.startswith("YARN's final status is SUCCEEDED although the job failed")
    change(run, exit_code=0)
    assert trouble(Evidence(run)) == []


def test_a_daemon_that_came_back_is_a_warning(run: Path) -> None:
    """One log has both lives; the silence is the longest possible outage."""
    change(run, exit_code=0)
    daemons(run)
    log(run, "daemons/resourcemanager.log", "last words", before_exit_ns=10**9)
    log(run, "daemons/resourcemanager.log", "STARTUP_MSG: ", before_exit_ns=0)
    words = "resourcemanager was restarted during the run: its log was silent for 1.0 s"
    assert trouble(Evidence(run)) == [words]


@pytest.mark.parametrize(
    ("address", "name"), [("127.0.0.1:20004", "datanode-0 (127.0.0.1:20004)"), ("h9:9866", "the DataNode at h9:9866")]
)
def test_a_datanode_that_fell_silent_is_a_warning(run: Path, address: str, name: str) -> None:
    change(run, exit_code=0)
    daemons(run)
    text = f"BLOCK* removeDeadDatanode: lost heartbeat from {address}, removeBlocksFromBlockMap true"
    log(run, "daemons/namenode.log", text, before_exit_ns=10**9)
    assert trouble(Evidence(run)) == [
        f"{name} stopped responding: writes waited for it until the NameNode declared it dead"
    ]
    daemons(run, "datanode-0")
    others = [line for line in trouble(Evidence(run)) if "stopped responding" not in line]
    assert others == ["datanode-0 died during the run"]


def test_an_application_that_never_started_is_explained_by_the_resourcemanager(run: Path) -> None:
    change(run, ended_by="accept timeout", diagnostics="[Sat Nov 21 10:00:00 +0000 2026] Queue's limit exceeded. \n")
    cause = "still ACCEPTED after accept_timeout_s = 7 s; YARN's diagnostics: "
    assert reasons.never_started(Evidence(run), 7) == f"{cause}Queue's limit exceeded."
    change(run, diagnostics="word " * 100)
    long = reasons.never_started(Evidence(run), 7)
    assert len(long) <= reasons.MAX_REASON_CHARACTERS
    assert long.endswith("word ...")
    change(run, diagnostics="")
    assert reasons.never_started(Evidence(run), 7) == f"{cause}none"


def test_a_timeout_names_the_call_of_the_driver(run: Path) -> None:
    window = change(run, ended_by="timeout")
    driver = Evidence(run).driver_process
    assert driver
    line = {
        "k": "b",
        "i": 9999,
        "p": 1,
        "l": "launcher",
        "n": kinds.TFCLUSTER_SHUTDOWN,
        "t": window["exec_ns"] + 55 * 10**9,
    }
    with driver.path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    said = f"not finished after timeout_s = 60 s: the driver was in {kinds.TFCLUSTER_SHUTDOWN} for 5.0 s"
    assert reasons.timed_out(Evidence(run), 60) == f"{said}; raise it with --set timeout_s=..."


def test_a_timeout_names_a_trainer_that_had_died(run: Path) -> None:
    """As published, TensorFlowOnSpark does not end a job for it; a trainer that we ended ourselves is no cause."""
    window = change(run, ended_by="timeout")
    assert (
        reasons.timed_out(Evidence(run), 60) == "not finished after timeout_s = 60 s; raise it with --set timeout_s=..."
    )
    worker = next(p for p in Evidence(run).processes if p.process.role == "worker")
    writer = next(p for p in Evidence(run).processes if p.process.role == "python-worker")
    words = f"trainer process {worker.process.pid} died: killed by signal 9"
    for at_ns, found in ((10**12, False), (10**9, True)):
        attrs = {"cause": words, "pid": worker.process.pid, "code": -9}
        line = {"k": "i", "n": "trainer died", "t": window["exec_ns"] + at_ns, "a": attrs}
        with writer.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        cause = reasons.timed_out(Evidence(run), 60)
        assert (cause == f"worker 0: {words}; not finished after timeout_s = 60 s") == found
