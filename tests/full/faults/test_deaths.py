"""Every process of a job is killed in the middle of training; each time the evidence up to then is kept.

All runs share one cluster, so that each of them also shows that the one before left it usable.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hdfs
import pytest
import requests

import dlobd as package
from dlobd.errors import Busy
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.embedded.processes import containers_of, daemons_of
from tests.cluster.test_cluster import NAMES, mentions
from tests.cluster.test_ways import HADOOP_DAEMONS
from tests.faults import END_S, LONG, kept

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480)]


def trainer_of(role: str) -> Callable[[Any], None]:
    return lambda started: os.kill(started.trains()[role], signal.SIGKILL)


def container_of(*words: str) -> Callable[[Any], None]:
    return lambda started: started.container(*words).kill()


def python_of(*words: str) -> Callable[[Any], None]:
    """Kills the driver's Python below a container's JVM."""

    def kill(started: Any) -> None:
        (python,) = (p for p in started.container(*words).children(recursive=True) if "train.py" in p.cmdline())
        python.kill()

    return kill


def child_of(program: str, word: str) -> Callable[[Any], None]:
    return lambda started: started.child(word, program=program).kill()


OWNER = """
import sys, time
from pathlib import Path
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
cluster = EmbeddedCluster(ClusterSettings(Path(sys.argv[1])))
cluster.start(lambda line: None, stays=sys.argv[2] == "stays")
print(cluster.endpoints.webhdfs_url, flush=True)
if sys.argv[2] != "stays":
    time.sleep(200)
"""


def owner(work_dir: Path, mode: str) -> subprocess.Popen[str]:
    """Another process that starts a cluster, as a command would; its first line is the WebHDFS address."""
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).resolve().parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(work_dir), mode], stdout=subprocess.PIPE, text=True, env=env
    )


CLIENT, CLUSTER = "deploy_mode=client", "deploy_mode=cluster"
VICTIMS = {
    "chief": (CLIENT, trainer_of("chief"), r"chief 0: trainer process \d+ died: killed by signal 9", "SUCCEEDED"),
    "executor": (
        CLIENT,
        container_of("YarnCoarseGrainedExecutorBackend", "--executor-id 2"),
        r"executor 2 \(container_\w+\) was killed by signal 9 \(SIGKILL\)",
        "SUCCEEDED|FAILED",
    ),
    "application master": (
        CLIENT,
        container_of("ExecutorLauncher"),
        r"the ApplicationMaster \(container_\w+_000001\) was killed by signal 9 \(SIGKILL\)",
        "FAILED",
    ),
    "driver": (
        CLIENT,
        child_of("python", "/train.py"),
        r"the driver's Python was killed by signal 9 \(SIGKILL\)",
        "SUCCEEDED",
    ),
    "spark-submit": (
        CLIENT,
        child_of("java", "SparkSubmit"),
        r"spark-submit was killed by signal 9 \(SIGKILL\)",
        "",
    ),
    "driver in its container": (
        CLUSTER,
        python_of("ApplicationMaster"),
        r"the driver's Python was killed by signal 9 \(SIGKILL\)",
        "FAILED",
    ),
    "driver's JVM in its container": (
        CLUSTER,
        container_of("ApplicationMaster"),
        r"the driver's JVM, which is the ApplicationMaster \(container_\w+_000001\) was killed by signal 9 \(SIGKILL\)",
        "FAILED",
    ),
}
"""Who is killed: deploy mode, how, the cause that must be named, and what YARN calls the application. Of a driver that
runs beside spark-submit YARN knows nothing, and calls its job SUCCEEDED. Of spark-submit nothing is promised: its
ApplicationMaster notices, and we ask YARN to kill the application, whichever comes first."""


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_9_of_a_process_fails_the_run_and_keeps_its_evidence(dlobd: Any, victim: str) -> None:
    """The one line names the process and the signal, the exit code is that of a failed run, and the bundle holds the
    spans up to then, although the other processes failed in turn and had something to say about it."""
    mode, kill, cause, yarn_says = VICTIMS[victim]
    started = dlobd.start_run(LONG, mode)
    started.trains()
    kill(started)
    ended = started.ended(END_S)
    assert ended.code == 5
    assert re.fullmatch(f"dlobd: run failed: {cause}", ended.line)
    record = kept(ended.bundle, "failed")
    assert re.fullmatch(cause, record["reason"])
    app = json.loads((ended.bundle.evidence / "rm-app.json").read_text())
    assert not yarn_says or re.fullmatch(yarn_says, app["finalStatus"])
    warned = [warning for warning in record["warnings"] if warning.startswith("YARN's final status is SUCCEEDED")]
    assert bool(warned) == (app["finalStatus"] == "SUCCEEDED")
    assert (ended.bundle.evidence / "event-log.jsonl").stat().st_size > 0


def test_sigterm_during_the_job_marks_the_run_interrupted(dlobd: Any) -> None:
    """It ends the job and its containers as Ctrl-C does; what is known is kept, and the line says where."""
    started = dlobd.start_run(LONG)
    started.trains()
    started.signal(signal.SIGTERM)
    ended = started.ended(END_S)
    assert ended.code == 130
    bundle = dlobd.newest()
    assert ended.line == f"dlobd: interrupted; evidence so far: {bundle.path}"
    assert kept(bundle, "interrupted")["reason"] == "interrupted by the user or the system while the job was running"


def test_kill_9_of_the_command_leaves_no_process_of_the_job(dlobd: Any) -> None:
    """spark-submit, the driver's Python, the containers and the trainers end by themselves; the bundle says that its
    run was interrupted; the spans are where YARN keeps its logs."""
    started = dlobd.start_run(LONG)
    started.trains()
    started.signal(signal.SIGKILL)
    started.ended(END_S)
    dlobd.is_quiet()
    bundle = dlobd.newest()
    assert bundle.read_json()["status"] == "interrupted"
    shown = dlobd("show", str(bundle.path))
    assert shown.code == 0
    why = f"{bundle.path} has no hashes: its run has not ended, or was killed."
    assert shown.said == [f"dlobd: warning: {why} Next: dlobd import {bundle.path}"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_signal_during_the_start_of_the_cluster_leaves_no_daemon(
    alone: Any, number: signal.Signals, code: int
) -> None:
    """Daemons that have been started, and their watchdog, are gone soon after; Ctrl-C is one line."""
    started = alone.start_run()
    while len(daemons_of(alone.work_dir)) < 3:
        assert started.process.poll() is None
        time.sleep(0.05)
    started.signal(number)
    ended = started.ended(END_S)
    assert ended.code == code
    if number == signal.SIGINT:
        assert ended.line == "dlobd: interrupted before the job was submitted; no bundle was kept."
        assert alone.bundles() == []
        assert daemons_of(alone.work_dir) == []
    alone.is_empty()


@pytest.mark.slow
def test_ctrl_c_twice_leaves_no_cluster(alone: Any) -> None:
    started = alone.start_run(LONG)
    started.trains()
    started.signal(signal.SIGINT)
    time.sleep(2)
    started.signal(signal.SIGINT)
    ended = started.ended(END_S)
    assert ended.code == 130
    assert ended.line.startswith("dlobd: interrupted")
    assert alone.newest().read_json()["status"] == "interrupted"
    alone.is_empty()


def test_a_job_past_its_timeout_is_ended(dlobd: Any) -> None:
    ended = dlobd.run(LONG, "timeout_s=10")
    assert ended.code == 5
    assert re.fullmatch(
        r"dlobd: run failed: not finished after timeout_s = 10 s: the driver was in .+ for \d+\.\d s; raise it with .+",
        ended.line,
    )
    assert ended.bundle.read_json()["window"] is not None


def test_a_container_beyond_its_memory_is_named(dlobd: Any) -> None:
    """A NodeManager kills an executor whose trainer needs more than was asked for; the figures and the remedy are in
    the cause."""
    ended = dlobd.run(LONG, "executor_overhead_mb=100")
    assert ended.code == 5
    assert re.fullmatch(
        r"dlobd: run failed: executor [12] \(container_\w+\) was killed by YARN: it was running \d+B beyond "
        r"the 'PHYSICAL' memory limit\. Current usage: .* of .* physical memory used; "
        r"raise executor_overhead_mb or lower batch_size",
        ended.line,
    )


def test_a_result_below_the_wanted_accuracy_is_invalid(dlobd: Any) -> None:
    """The job ended well, but its result may not be used: exit code 6, with both figures."""
    ended = dlobd.run("min_accuracy=0.999")
    assert ended.code == 6
    assert re.fullmatch(
        r"dlobd: run invalid: the test accuracy is 0\.\d{4}; the experiment asks for at least 0\.9990", ended.line
    )
    record = ended.bundle.read_json()
    assert record["status"] == "invalid"
    assert record["metrics"]["test_accuracy"] < 0.999


@pytest.mark.slow
def test_a_loss_that_does_not_fall_is_invalid(dlobd: Any) -> None:
    """A learning rate of nearly nothing teaches nothing, and the run is not taken for a good one."""
    ended = dlobd.run("learning_rate=1e-12")
    assert ended.code == 6
    assert re.fullmatch(r"dlobd: run invalid: the loss was [\d.]+ at the beginning and [\d.]+ at the end", ended.line)


def test_an_interrupt_ends_sparks_own_daemons(dlobd) -> None:
    """After Ctrl-C in the middle of a job there is no Master, Worker or executor left, only the Hadoop daemons."""
    started = dlobd.start_run("scheduler=standalone", "epochs=200")
    started.child("CoarseGrainedExecutorBackend")
    assert len(daemons_of(dlobd.work_dir)) > HADOOP_DAEMONS
    started.signal(signal.SIGINT)
    assert started.ended(END_S).code == 130
    dlobd.is_quiet()
    assert len(daemons_of(dlobd.work_dir)) == HADOOP_DAEMONS


def test_a_killed_command_leaves_an_application_that_the_next_one_ends(dlobd: Any) -> None:
    """kill -9 of dlobd, its driver in a cluster that stays: the next run ends that application and says so."""
    started = dlobd.start_run(LONG, "deploy_mode=cluster", "launcher=barrier", "input=read")
    started.trains()
    started.signal(signal.SIGKILL)
    started.ended(10)
    run_id = dlobd.newest().run_id
    assert [path.stem for path in (dlobd.cache / "submitted").iterdir()] == [run_id]
    ended = dlobd.run("launcher=barrier", "input=read")
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.err.splitlines() if "left running" in line]
    application = re.search(r"ended (application_\d+_\d+), which run (\S+) left running", line)
    assert application[2] == run_id
    url = f"{EmbeddedCluster.attach(dlobd.work_dir, hold=False).endpoints.rm_url}/ws/v1/cluster/apps/{application[1]}"
    assert requests.get(url, timeout=10).json()["app"]["state"] == "KILLED"
    assert list((dlobd.cache / "submitted").iterdir()) == []


def test_a_killed_command(alone: Any) -> None:
    """kill -9 of dlobd itself, while the job runs: no daemon, no spark-submit, no container is left."""
    started = alone.start_run(LONG)
    started.trains()
    assert len(daemons_of(alone.work_dir)) == 6
    started.signal(signal.SIGKILL)
    started.ended(10)
    alone.is_empty()


def test_kill_9_of_the_owner_leaves_no_daemon_and_hdfs_keeps_its_content(tmp_path: Path) -> None:
    """The daemons and their watchdog end with their owner; a cluster that stays then serves the same files, and its
    own command's end does not stop it, but `stop` of another process does."""
    with owner(tmp_path, "own") as killed:
        url = killed.stdout.readline().strip()
        hdfs.InsecureClient(url, user="somebody").write("/kept", b"content")
        assert len(daemons_of(tmp_path)) == len(NAMES)
        killed.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while mentions(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert mentions(tmp_path) == []

    with owner(tmp_path, "stays") as ended:
        assert ended.wait(timeout=120) == 0
    attached = EmbeddedCluster.attach(tmp_path)
    try:
        with hdfs.InsecureClient(attached.endpoints.webhdfs_url, user="somebody").read("/kept") as reader:
            assert reader.read() == b"content"
        assert attached.status().stays
        with pytest.raises(Busy):
            EmbeddedCluster(ClusterSettings(tmp_path)).start(lambda line: None)
    finally:
        attached.stop()
    assert daemons_of(tmp_path) == []
    assert containers_of(tmp_path) == []
    assert mentions(tmp_path) == []
