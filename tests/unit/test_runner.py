"""What a run does when its job was not the experiment's: the real runner, with a job that only says its last words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlobd.attribution import reasons
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import load
from dlobd.run import runner
from dlobd.run.schedulers.base import Command

RACE = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext. : "
    "java.util.ConcurrentModificationException at "
    "org.sparkproject.jetty.ee10.servlet.ServletHandler.initialize(ServletHandler.java:687) at "
)


@pytest.mark.parametrize(
    ("words", "statuses"),
    [
        ((RACE, "no such column"), [reasons.LOST_RACE, "no such column"]),  # the second one is another failure
        ((RACE, RACE), [reasons.LOST_RACE, reasons.LOST_RACE]),  # and no third one is made
        (("no such column", "unused"), ["no such column"]),
    ],
)
def test_a_job_that_spark_lost_at_its_start_is_submitted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], statuses: list[str]
) -> None:
    """Each is a run with a bundle of its own, and both stay."""
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    left = list(words)
    began: list[Bundle] = []
    said: list[str] = []

    def fails(command: Command) -> Command:
        return replace(command, argv=("sh", "-c", f"echo 'dlobd: job failed: {left.pop(0)}'; exit 1"))

    experiment = load("softmax-mnist-quick", ["launcher=native", "input=read"])
    path = runner.run(experiment, tmp_path / "runs", said.append, began=began.append, changed=fails)
    assert path == began[-1].path
    records = [bundle.read_json() for bundle in began]
    assert [record["status"] for record in records] == ["failed"] * len(statuses)
    for record, cause in zip(records, statuses, strict=True):
        assert cause in record["reason"]
    assert sum("once more" in line for line in said) == len(statuses) - 1
