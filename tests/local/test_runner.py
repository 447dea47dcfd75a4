"""What a run does when its job was not the experiment's: the real runner, with a job that only says its last words."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import Interrupted
from dlobd.experiment.files import load
from dlobd.recompute import computed
from dlobd.record.run import Run
from dlobd.run import runner
from dlobd.run.observer import RunObserver
from dlobd.run.schedulers.base import Command
from dlobd.tracing.clock import tick_ns

RACE = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext. : "
    "java.util.ConcurrentModificationException at "
    "org.sparkproject.jetty.ee10.servlet.ServletHandler.initialize(ServletHandler.java:687) at "
)


class Replacing(RunObserver):
    """Submits another command."""

    def __init__(self, argv: tuple[str, ...]) -> None:
        self.argv = argv
        self.bundles: list[Bundle] = []

    def created(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)

    def submitting(self, command: Command) -> Command:
        return replace(command, argv=self.argv)


def test_a_job_that_fails_is_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark shows a failure, also one that has nothing to do with the experiment: nothing is submitted again."""
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    failing = Replacing(("sh", "-c", f"echo 'dlobd: job failed: {RACE}'; exit 1"))
    experiment = load("softmax-mnist-quick", ["launcher=native", "input=read"])
    path = runner.run(experiment, tmp_path / "runs", lambda line: None, observer=failing)
    assert [bundle.path for bundle in failing.bundles] == [path]
    record = Bundle(path).read_json()
    assert record["status"] == "failed"
    assert record["reason"].startswith("Spark's driver hit a race condition")


class Interrupting(Replacing):
    """Interrupts at a step, and keeps the record that run.json has then."""

    def __init__(self, step: str) -> None:
        super().__init__(("sleep", "600"))
        self.step = step
        self.records: list[Run] = []

    def created(self, bundle: Bundle) -> None:
        super().created(bundle)
        self._note("created")

    def submitting(self, command: Command) -> Command:
        self._note("submitting")
        return super().submitting(command)

    def _note(self, step: str) -> None:
        self.records.append(self.bundles[-1].read())
        if step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["created", "submitting"])
def test_an_interrupt_before_the_submission_leaves_no_bundle(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    experiment = load("softmax-mnist-quick", ["launcher=native", "input=read"])
    observer = Interrupting(step)
    with pytest.raises(Interrupted, match=r"^interrupted before the job was submitted; no bundle was kept\.$"):
        runner.run(experiment, tmp_path / "runs", lambda line: None, observer=observer)
    assert not (tmp_path / "runs").exists()
    for record in observer.records:
        assert (record.status, record.reason) == ("running", None)
        assert record.process is not None
        assert record.process.pid == os.getpid()


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("submit: starting false", computed.INTERRUPTED),
        ("collect: logs, spans, markers", computed.INTERRUPTED_LATE),
    ],
)
def test_an_interrupt_after_the_submission_keeps_the_evidence(
    step: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    observer = Replacing(("false",))

    def report(line: str) -> None:
        if line == step:
            raise KeyboardInterrupt

    experiment = load("softmax-mnist-quick", ["launcher=native", "input=read"])
    with pytest.raises(Interrupted, match="interrupted; evidence so far: "):
        runner.run(experiment, tmp_path / "runs", report, observer=observer)
    (bundle,) = observer.bundles
    record = bundle.read()
    assert (record.status, record.reason, record.process) == ("interrupted", reason, None)
    assert bundle.verify() == []


def test_a_run_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the job's own processes used is in its record, and the sampler is gone; with recording off it never was."""
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    code = "import time\nwhile time.process_time() < 1.5: pass\nraise SystemExit(1)"
    burning = Replacing((sys.executable, "-c", code))
    experiment = load("softmax-mnist-quick", ["launcher=native", "input=read"])
    path = runner.run(experiment, tmp_path / "runs", lambda line: None, observer=burning)
    record = Bundle(path).read()
    found = record.resources
    assert Bundle(path).verify() == []
    driver = next(process for process in found.processes if process.role == "driver")
    seen_ns = driver.cpu_ns + found.hosts[0].unseen_cpu_ns
    assert seen_ns >= 1_500_000_000 - 2 * tick_ns()
    assert found.hosts[0].sampled_ns == record.wall_ns
    assert {"dlobd", "sampler"} <= {process.role for process in found.processes}
    assert not any("resource_sampler" in " ".join(child.cmdline()) for child in psutil.Process().children())

    monkeypatch.setenv("DLOBD_TRACE", "off")
    unrecorded = Bundle(runner.run(experiment, tmp_path / "runs", lambda line: None, observer=burning))
    assert unrecorded.read().resources is None
    assert not (unrecorded.path / files.RESOURCES).exists()
