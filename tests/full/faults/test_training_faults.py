"""Training that cannot go on though no process has died: damaged input, ranks that hang, feeds that stall.

Each ends in bounded time with one line that names what did not happen, and where; its evidence up to then is kept.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
from typing import Any

import psutil
import pytest

from dlobd.experiment import files
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.file_system import WebHdfs
from dlobd.run import staging
from tests.cluster.conftest import QUICK, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LONG = "epochs=200"
"""Of 30 steps: minutes, unless something ends it."""

END_S = 300
"""Within which a run has to end after something hangs. The deadlines of single waits are 60 s."""


def failed(ended: Any) -> dict[str, Any]:
    """The record of a run that failed, after a look at its bundle."""
    assert ended.code == 5, ended.err
    record: dict[str, Any] = ended.bundle.read_json()
    assert record["status"] == "failed"
    assert ended.line == f"dlobd: run failed: {record['reason']}"
    assert ended.bundle.verify() == []
    assert sum(layer["ns"] for layer in record["layers"]) + record["unattributed_ns"] == record["wall_ns"] > 0
    return record


# ---- input of unequal length


def shortened(cluster: EmbeddedCluster, seed: int) -> Any:
    """Puts the quick experiment's data set of this seed into HDFS, and returns what halves one of its files."""
    quick = dataclasses.replace(files.load(QUICK), seed=seed)
    storage = WebHdfs(cluster.endpoints.webhdfs_url, cluster.user)
    staged = staging.stage(quick, storage, "", lambda line: None)
    path = f"{staged.train_dir}/part-00001.tfrecord"
    data = storage.read(path, "test")
    return path, lambda: storage.write(path, data[: len(data) // 2], "test", 4 << 20)


def test_a_data_set_with_a_shorter_file_is_refused(dlobd: Any, shared_cluster: EmbeddedCluster) -> None:
    """Before anything is submitted: the line names the file and both numbers of records, and no bundle is left."""
    path, damage = shortened(shared_cluster, seed=1001)
    damage()
    ended = dlobd.run("seed=1001")
    assert ended.code == 4
    assert ended.line == (
        f"dlobd: The data set in HDFS is damaged: {path} holds 1500 records, 3000 expected. "
        "Next: remove it with `dlobd clean --yes`; the next run writes it again"
    )
    assert dlobd.bundles() == []


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("feed", r"rank [01] \((chief|worker)\): the feed stalled: no block came for 60 s, after 15 of 30 blocks"),
        ("read", r"rank 1 \(worker\): RuntimeError: the input ended after 15 of 30 steps"),
    ],
)
def test_a_file_that_gets_shorter_once_the_job_is_submitted(
    dlobd: Any, shared_cluster: EmbeddedCluster, way: str, cause: str
) -> None:
    """The rank whose input ends says so with both counts; the other one does not wait for it in a collective."""
    seed = {"feed": 1002, "read": 1003}[way]
    _, damage = shortened(shared_cluster, seed)
    started = dlobd.start_run(f"seed={seed}", f"input={way}")
    started.child("SparkSubmit", program="java")
    damage()
    record = failed(started.ended(END_S))
    assert re.fullmatch(cause, record["reason"])


# ---- ranks that do not arrive


def joins(started: Any) -> int:
    """Waits for a trainer that imports TensorFlow, not the chief where roles are known by then; its pid."""

    def found() -> int | None:
        for path in started.span_files():
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith('{"k":"process"')]
            if lines and lines[-1]["role"] in ("trainer", "worker") and "join ranks" not in path.read_text():
                return int(lines[-1]["pid"])
        return None

    return until(found, 120, "a trainer imports TensorFlow")  # type: ignore[no-any-return]


@pytest.mark.parametrize("launcher", ["tfos", "barrier"])
def test_a_rank_that_hangs_before_it_joins_is_named(dlobd: Any, launcher: str) -> None:
    """A trainer is stopped while it imports TensorFlow: the others wait for a minute, then say whom they missed."""
    started = dlobd.start_run(LONG, f"launcher={launcher}")
    pid = joins(started)
    os.kill(pid, signal.SIGSTOP)
    ended = started.ended(END_S)
    record = failed(ended)
    stopped = "worker" if launcher == "tfos" else "(chief|worker)"
    assert re.fullmatch(
        rf"{stopped} 0 at 127\.0\.0\.1:\d+ did not join TensorFlow's cluster within 60 s of the first rank",
        record["reason"],
    )


@pytest.mark.parametrize(
    ("launcher", "daemon", "cause"),
    [
        ("tfos", "tfos_daemon", r"(chief|worker) 0 did not register with TensorFlowOnSpark within 120 s"),
        ("barrier", "worker_daemon", r"rank [01] did not reach the barrier within 120 s"),
    ],
)
def test_a_python_worker_that_hangs_before_its_rank_has_an_address(
    dlobd: Any, launcher: str, daemon: str, cause: str
) -> None:
    started = dlobd.start_run(LONG, f"launcher={launcher}")
    jvm = started.container("YarnCoarseGrainedExecutorBackend", "--executor-id 2")

    def found() -> psutil.Process | None:
        for child in jvm.children(recursive=True):
            try:
                if f"dlobd.job.launchers.{daemon}" in child.cmdline():
                    return child
            except psutil.Error:
                pass  # it has ended meanwhile
        return None

    until(found, 180, "executor 2 starts Python").send_signal(signal.SIGSTOP)
    record = failed(started.ended(END_S))
    assert re.fullmatch(cause, record["reason"])


# ---- feeds that stall


@pytest.mark.parametrize(("launcher", "victim"), [("tfos", "python"), ("tfos", "java"), ("barrier", "python")])
def test_a_feed_that_stalls_is_named(dlobd: Any, launcher: str, victim: str) -> None:
    """The process that feeds the worker is stopped: its rank says for how long nothing came, and after what."""
    started = dlobd.start_run(LONG, f"launcher={launcher}")
    above = psutil.Process(started.trains()["worker"]).parents()
    next(p for p in above if p.name().startswith(victim)).send_signal(signal.SIGSTOP)
    record = failed(started.ended(END_S))
    assert re.fullmatch(
        r"rank 1 \(worker\): the feed stalled: no block came for 60 s, after \d+ of 6000 blocks", record["reason"]
    )
    assert "first step done" in [event["event"] for event in record["startup"]]
