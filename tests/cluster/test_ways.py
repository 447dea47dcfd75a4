"""Other ways to run the quick experiment, one of each kind; all valid combinations are in tests/full/ways."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.processes import daemons_of
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HADOOP_DAEMONS = 6


def losses(bundle: Bundle) -> list[float]:
    """The loss of every step, as the chief reported it."""
    markers = json.loads((bundle.evidence / "markers.json").read_text())
    found: list[float] = json.loads(markers["rank-0.json"])["losses"]
    return found


def explained(bundle: Bundle) -> dict[str, int]:
    """Layer -> ns of a run whose parts sum exactly and are explained but for 5 %."""
    run = json.loads((bundle.path / "run.json").read_text())
    assert (run["status"], run["omitted"]) == ("ok", []), run["reason"]
    layers = {layer["layer"]: layer["ns"] for layer in run["layers"]}
    assert sum(layers.values()) + run["unattributed_ns"] == run["wall_ns"]
    unknown_ns = run["unattributed_ns"] + sum(layer["unexplained_ns"] for layer in run["layers"])
    assert unknown_ns <= 0.05 * run["wall_ns"], run["layers"]
    # what a person's own code does inside is the one part of a layer that is not seen while another is
    hidden = {item["layer"] for item in run["not_measured"] if item["inside"] != "user"}
    assert hidden & {name for name, ns in layers.items() if ns} == set()
    return layers


def same_training(one: Bundle, other: Bundle) -> None:
    """Fails unless every step had the same loss: the same batches in the same order, the same weights."""
    assert len(losses(one)) == len(losses(other)) == 30
    assert losses(one) == pytest.approx(losses(other), rel=1e-5)


def test_spark_without_yarn(dlobd, quick_run) -> None:
    """Spark's own Master and Workers run the same job, YARN has no part of it, and they are gone afterwards."""
    ended = dlobd.run("scheduler=standalone", "launcher=barrier", "input=read")
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert "yarn" not in layers
    assert {"spark", "launcher", "hdfs", "tensorflow"} <= layers.keys()
    same_training(ended.bundle, quick_run.bundle)
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert run["setup"]["spark_up_ns"] > 0
    assert "executor process up" in [event["event"] for event in run["startup"]]
    for executor in ("executor_0", "executor_1"):
        assert (ended.bundle.logs / "containers" / executor / "stderr").stat().st_size > 0
        assert list((ended.bundle.spans / executor).glob("spans-*.jsonl.gz"))
    assert len(daemons_of(dlobd.work_dir)) == HADOOP_DAEMONS


def test_plain_processes(alone, quick_run) -> None:
    """Without Spark, YARN and HDFS: no cluster is started, and the training is the same."""
    ended = alone.run("launcher=native", "input=read")
    assert ended.code == 0, ended.err
    assert not alone.work_dir.exists()
    layers = explained(ended.bundle)
    assert {name for name, ns in layers.items() if ns} == {"client", "launcher", "tensorflow"}
    same_training(ended.bundle, quick_run.bundle)
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert run["configuration"]["scheduler"] == "none"
    assert run["window"]["name"] == "parent process exec -> exit"
    assert {item["layer"] for item in run["not_measured"]} == {"channel", "yarn", "spark", "feed", "hdfs"}
    shown = alone("show", str(ended.bundle.path), "--full")
    assert "not used by this kind of run" in " ".join(shown.out.split())


def test_a_killed_rank_of_plain_processes(alone) -> None:
    """The parent notices at once, ends the other ranks, and the line names the rank and the signal."""
    started = alone.start_run("launcher=native", "input=read", "epochs=2000", "checkpoint_every_steps=1000000")
    parent = started.child("jobs/train.py")

    def both() -> list[psutil.Process] | None:
        assert started.process.poll() is None, started.ended(5)
        found = [p for p in parent.children() if "dlobd.job.launchers.trainer_process" in " ".join(p.cmdline())]
        return found if len(found) == 2 else None

    ranks = until(both, 60, "both ranks have started")
    os.kill(ranks[1].pid, signal.SIGKILL)
    ended = started.ended(150)
    assert ended.code == 5
    assert f"trainer process {ranks[1].pid} of rank 1 died: killed by signal 9" in ended.err
    assert not psutil.pid_exists(ranks[0].pid)


def test_an_interrupt_ends_plain_processes(alone) -> None:
    """Ctrl-C: exit 130, the bundle says interrupted, no rank is left."""
    started = alone.start_run("launcher=native", "input=read", "epochs=2000")
    started.child("dlobd.job.launchers.trainer_process")
    started.signal(signal.SIGINT)
    assert started.ended(150).code == 130
    assert json.loads((alone.newest().path / "run.json").read_text())["status"] == "interrupted"


def test_a_disk_that_refuses_is_one_line(alone) -> None:
    """The local directory of launcher native is a file: refused with a line, before anything runs."""
    Path(alone.cache, "native").write_text("in the way")
    ended = alone.run("launcher=native", "input=read")
    assert ended.code == 3
    assert "cannot be used" in ended.line
    assert alone.bundles() == []


def test_a_training_that_diverges_is_invalid_at_once(alone) -> None:
    """Each step multiplies the weights by nearly a million. The line names the step; the ranks do not go on."""
    ended = alone.run("launcher=native", "input=read", "learning_rate=1000000", "weight_decay=1", "epochs=100")
    assert ended.code == 6
    run = ended.bundle.read_json()
    assert run["status"] == "invalid"
    assert "the loss became" in run["reason"]
    assert "at step" in run["reason"]
