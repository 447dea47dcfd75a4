"""What a run does when its job was not the experiment's: the real runner, with a job that only says its last words."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import load
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
