"""A data set made on the nodes: by real Spark tasks, the same bytes as this machine writes, and all or nothing."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import store
from dlobd.errors import ClusterError
from dlobd.experiment import files
from dlobd.hadoop.embedded.java import find_java
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.generation import Request
from dlobd.paths import shipped, spark_home
from dlobd.run import generation, staging
from dlobd.run.schedulers.base import Command, Submission
from dlobd.run.submitted_process import Window
from dlobd.schema import Experiment


def _synthetic(*sets: str) -> Experiment:
    words = ["dataset=synthetic", "synthetic_shape=16x16", "train_samples=600", "test_samples=100", *sets]
    return files.load("softmax-mnist-quick", words)


def _made(experiment: Experiment, base: Path) -> subprocess.CompletedProcess[str]:
    """By the script that is submitted, on a Spark of this machine."""
    file = base.parent / "request.json"
    file.write_text(Request(experiment, str(base), "", "someone").to_json())
    options = ("--master", "local[2]", "--conf", "spark.ui.enabled=false")
    command = [str(spark_home() / "bin" / "spark-submit"), *options, str(shipped("jobs") / "generate.py"), str(file)]
    pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = {**os.environ, **pythons, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment, check=False)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_spark_makes_what_this_machine_would_write(tmp_path: Path) -> None:
    experiment = _synthetic("block_size_mb=1", "workers=3")
    here = staging.stage(experiment, LocalDirectory(), str(tmp_path / "here"), lambda line: None)
    base = tmp_path / "there" / Path(here.train_dir).parent.name
    base.parent.mkdir()
    done = _made(experiment, base)
    assert done.returncode == 0, done.stderr
    there = {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    expected = Path(here.train_dir).parent
    assert there.keys() == {str(path.relative_to(expected)) for path in expected.rglob("*") if path.is_file()}
    for name, data in there.items():
        assert data.replace(str(base).encode(), str(expected).encode()) == (expected / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_task_that_cannot_write_is_one_line(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "train" / "part-00001.tfrecord" / "in-the-way").mkdir(parents=True)
    done = _made(_synthetic(), base)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("dlobd: job failed: ")]
    assert "part-00001.tfrecord: IsADirectoryError: " in line
    assert not (base / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["train_samples=2000000"], True),
        (["train_samples=2000000", "launcher=native"], False),
        (["train_samples=2000000", "scheduler=standalone"], True),
        (["train_samples=20000"], False),
        (["dataset=mnist"], False),
    ],
)
def test_what_is_made_on_nodes(sets: list[str], expected: bool) -> None:
    """What is large, needs no files, and where there are nodes: 2,000,000 images of 16x16 have more than 512 MB."""
    assert generation.wanted(_synthetic(*sets)) is expected


def test_an_own_class_stays_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "from dlobd.job.datasets.synthetic import Synthetic\nclass Mine(Synthetic):\n    anywhere = True\n"
    )
    assert not generation.wanted(_synthetic("dataset=own.py:Mine", "train_samples=2000000"))


class Elsewhere:
    """A place as far as a job that fails sees it: the scheduler below asks nothing of it."""

    rm_url = None
    storage = LocalDirectory()

    def __init__(self) -> None:
        self.prepared: list[str] = []

    def target(self) -> None:
        return None

    def prepare(self, run_dir: str) -> None:
        self.prepared.append(run_dir)

    def job_fields(self) -> dict[str, str]:
        return {"webhdfs_url": "", "user": "someone"}

    def abort(self, application_id: str) -> str:
        return "diagnosed"

    def collect(self, window: Window, job: None, bundle: store.Bundle) -> tuple[list[str], dict[str, Any]]:
        if window.exit_code == 3:
            bundle.add_bytes(b"dlobd: job failed: of a container\n", "logs/containers/container_1_000001/stdout")
        return [], {}


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo 'dlobd: job failed: no room on x.'; exit 1", "was not generated: no room on x."),
        ("echo dlobd: it was I >&2; exit 3", "was not generated: of a container."),
        ("echo application_1_2 >&2; sleep 50", "not finished after timeout_s = 2 s"),
    ],
)
def test_a_job_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, line: str) -> None:
    def command(submission: Submission, target: Any, evidence: Path) -> Command:
        assert Path(submission.arguments[0]).is_file()
        return Command(("sh", "-c", script), {})

    monkeypatch.setattr("dlobd.axes.SCHEDULERS.get", lambda name: command)
    experiment = dataclasses.replace(_synthetic(), timeout_s=2)
    bundle = store.create(tmp_path, "data")
    place = Elsewhere()
    with pytest.raises(ClusterError) as caught:
        generation.make(experiment, place, bundle, lambda message: None, "/base")
    assert line in caught.value.line
    assert "\n" not in caught.value.line
    assert place.prepared == [""], "the event log's directory is there before the job"
    assert (bundle.path / generation.BELOW / "logs" / "driver.stderr").exists()
