"""Processes that die, and people who lose patience: bounded time, one line, a usable bundle, no process left."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import psutil
import pytest

from dlobd.attribution import attribute
from dlobd.cluster.processes import daemons_of
from dlobd.importers.assemble import assemble

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LONG = ("epochs=200",)
"""Long enough to be hit while it trains."""


def ended_badly(bundle: Any, status: str) -> str:
    """Checks what a run that did not end well leaves behind; returns its cause."""
    record = json.loads((bundle.path / "run.json").read_text())
    assert record["status"] == status
    assert bundle.verify() == []
    trace = assemble(bundle.path)
    split = attribute(trace)
    assert sum(layer.ns for layer in split.layers) + split.unattributed_ns == split.wall_ns
    assert {"rank-0", "rank-1"} <= set(trace.lanes)
    assert any(span.name == "step" for span in trace.spans), "the spans up to then"
    cause: str = record["cause"]
    assert "\n" not in cause
    return cause


def test_a_killed_trainer(dlobd: Any) -> None:
    """The run fails, names the trainer and the signal, and the next one is not harmed."""
    started = dlobd.start_run(*LONG)
    pids = started.trains()
    os.kill(pids["worker"], signal.SIGKILL)
    ended = started.ended(90)
    assert ended.code == 5, ended.err
    cause = ended_badly(dlobd.newest(), "failed")
    assert f"trainer process {pids['worker']} died: killed by signal 9" in cause
    dlobd.is_quiet()


def test_a_killed_executor(dlobd: Any) -> None:
    """The run fails and says that an executor was lost."""
    started = dlobd.start_run(*LONG)
    pids = started.trains()
    trainer = psutil.Process(pids["worker"])
    (jvm,) = [p for p in trainer.parents() if "YarnCoarseGrainedExecutorBackend" in " ".join(p.cmdline())][:1]
    jvm.kill()
    ended = started.ended(90)
    assert ended.code == 5, ended.err
    cause = ended_badly(dlobd.newest(), "failed")
    assert "xecutor" in cause or "died" in cause, cause
    dlobd.is_quiet()


def test_a_killed_driver(dlobd: Any) -> None:
    """The driver's Python is killed: the run fails and says so, whatever YARN calls it."""
    started = dlobd.start_run(*LONG)
    started.trains()
    started.child("jobs/train.py", program="python").kill()
    ended = started.ended(90)
    assert ended.code == 5, ended.err
    assert "killed by signal 9" in ended_badly(dlobd.newest(), "failed")
    dlobd.is_quiet()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run(dlobd: Any, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM while it trains: 130, one line with the bundle, which is marked and holds the spans."""
    started = dlobd.start_run(*LONG)
    started.trains()
    started.signal(number)
    ended = started.ended(60)
    assert ended.code == 130
    assert str(dlobd.newest().path) in ended.line
    assert "interrupted" in ended_badly(dlobd.newest(), "interrupted")
    dlobd.is_quiet()


def test_an_interrupted_start(alone: Any) -> None:
    """Ctrl-C while the daemons start: 130, and no daemon is left."""
    started = alone.start_run()
    started.child("NameNode")
    started.signal(signal.SIGINT)
    ended = started.ended(60)
    assert ended.code == 130
    assert daemons_of(alone.work_dir) == []


def test_a_killed_command(alone: Any) -> None:
    """kill -9 of dlobd itself, while the job runs: no daemon, no spark-submit, no container is left."""
    started = alone.start_run(*LONG)
    started.trains()
    started.signal(signal.SIGKILL)
    started.ended(10)
    alone.is_quiet(60)
    assert daemons_of(alone.work_dir) == []


def test_a_run_that_takes_too_long(dlobd: Any) -> None:
    """The experiment's own limit ends it, and is named."""
    ended = dlobd.run("timeout_s=10")
    assert ended.code == 5
    record = json.loads((dlobd.newest().path / "run.json").read_text())
    assert "timeout_s = 10" in record["cause"]
    dlobd.is_quiet()


def test_a_result_that_cannot_be_trusted(dlobd: Any) -> None:
    """A model that learned too little makes the run invalid, with both figures."""
    ended = dlobd.run("min_accuracy=0.999")
    assert ended.code == 6
    record = json.loads((dlobd.newest().path / "run.json").read_text())
    assert record["status"] == "invalid"
    assert record["cause"].startswith("test accuracy: 0.8")
    assert "0.9990" in record["cause"]
