"""What a run does when its job was not the experiment's: the real runner, with a job that only says its last words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlobd.bundle.store import Bundle
from dlobd.experiment.files import load
from dlobd.run import runner
from dlobd.run.schedulers.base import Command

RACE = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext. : "
    "java.util.ConcurrentModificationException at "
    "org.sparkproject.jetty.ee10.servlet.ServletHandler.initialize(ServletHandler.java:687) at "
)


def test_a_job_that_fails_is_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark shows a failure, also one that has nothing to do with the experiment: nothing is submitted again."""
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    began: list[Bundle] = []

    def fails(command: Command) -> Command:
        return replace(command, argv=("sh", "-c", f"echo 'dlobd: job failed: {RACE}'; exit 1"))

    experiment = load("softmax-mnist-quick", ["launcher=native", "input=read"])
    path = runner.run(experiment, tmp_path / "runs", lambda line: None, began=began.append, changed=fails)
    assert [bundle.path for bundle in began] == [path]
    record = began[0].read_json()
    assert record["status"] == "failed"
    assert record["reason"].startswith("Spark's driver hit a race condition")
