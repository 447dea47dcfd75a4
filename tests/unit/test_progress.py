"""Progress of a command: what it waits for, in the lines of a terminal and of a file."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlobd.experiment import files
from dlobd.experiment.own_job import from_script
from dlobd.run import progress as module
from dlobd.run.progress import Narrator, Progress
from dlobd.schema import Runnable
from dlobd.spans import TRAINING_LINE
from tests.captured import DATA

Lines = list[str]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Replaces the clock; the returned function moves it."""
    now = [100.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return wait


def _on_a_terminal(act: Callable[[Progress], None]) -> Lines:
    ours, theirs = os.openpty()
    with open(theirs, "w") as stream, Progress(stream) as progress:
        act(progress)
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    os.close(ours)
    seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(parts).decode())
    return re.findall(r"(\[ +\d+\.\d s\] [^\r]+|    \| [^\r]+)\r\n", seen)


def _in_a_file(act: Callable[[Progress], None], path: Path) -> Lines:
    with path.open("w") as stream, Progress(stream) as progress:
        act(progress)
    return path.read_text().splitlines()


def test_a_step_has_the_time_of_its_begin_on_a_terminal_and_in_a_file(
    clock: Callable[[float], None], tmp_path: Path
) -> None:
    def act(progress: Progress) -> None:
        progress("waiting for the\nApplicationMaster")
        clock(12)
        for executors in range(3):
            progress(f"waiting for executors: {executors} of 3")
            clock(5)
        progress("the script runs Spark job 1")
        clock(1)
        progress.quote("  a b   c")
        progress("the script runs Spark job 2")
        progress.keep("run 1 of 2: ok")

    expected = [
        "[   0.0 s] waiting for the ApplicationMaster",
        "[  12.0 s] waiting for executors: 0 of 3",
        "[  27.0 s] waiting for executors: 2 of 3",
        "[  27.0 s] the script runs Spark job 1",
        "    |   a b   c",
        "[  28.0 s] the script runs Spark job 2",
        "[  28.0 s] run 1 of 2: ok",
    ]
    assert _in_a_file(act, tmp_path / "log") == _on_a_terminal(act) == expected


def _said(experiment: Runnable, log: str, output: Lines = ()) -> Lines:
    said: Lines = []
    narrator = Narrator(said.append, experiment)
    for line in log.splitlines():
        narrator(line)
    for line in output:
        assert narrator.output(line)
    return said


def test_a_run_names_what_it_waits_for() -> None:
    log = (DATA / "quick-run" / "logs" / "driver.stderr").read_text()
    url = "http://localhost:17916/proxy/application_1795717270784_0021/"
    log = log.replace("yarn.Client [Thread-4]: \n", f"yarn.Client [Thread-4]: \n\t tracking URL: {url}\n", 1)
    assert _said(files.load("softmax-mnist-quick"), log) == [
        "submit: SparkContext starts",
        "submit: waiting for YARN to accept application_1795717270784_0021",
        f"submit: waiting for the ApplicationMaster; tracking URL: {url}",
        "submit: waiting for executors: 0 of 2",
        "submit: waiting for executors: 1 of 2",
        "submit: waiting for the first Spark job",
        "submit: waiting for TensorFlowOnSpark's nodes",
        "submit: Spark feeds the trainers, which import TensorFlow, then train",
        "submit: waiting for the launcher's shutdown",
        "submit: waiting for SparkContext to stop",
        "submit: waiting for spark-submit to exit",
    ]


def test_training_shows_epoch_step_and_loss() -> None:
    line = TRAINING_LINE + json.dumps({"step": 31, "loss": 0.53125})
    experiment = files.load("softmax-mnist-quick")
    said = _said(experiment, "", [line])
    epoch = -(-31 // experiment.steps_per_epoch)
    of = f"epoch {epoch} of {experiment.epochs}, step 31 of {experiment.most_steps}"
    assert said == [f"submit: training, {of}, loss 0.5312"]
    assert not Narrator(said.append, experiment).output("step 31")


@pytest.mark.parametrize(
    ("launcher", "source", "says"),
    [
        ("tfos", "read", ["TensorFlowOnSpark starts its nodes", "launcher's shutdown"]),
        ("barrier", "read", ["barrier stage, whose trainers", "launcher's shutdown"]),
    ],
)
def test_jobs_of_a_launcher_are_named(launcher: str, source: str, says: Lines) -> None:
    experiment = files.load("softmax-mnist-quick", [f"launcher={launcher}", f"input={source}"])
    log = "".join(
        f"INFO DAGScheduler: Got job {number} (collect at x.py:1)\n"
        f"INFO DAGScheduler: Job {number} finished: collect at x.py:1, took 1 s\n"
        for number in range({"tfos": 2, "barrier": 1}[launcher])
    )
    said = _said(experiment, log)
    assert len(said) == len(says)
    assert all(part in line for part, line in zip(says, said, strict=True)), said


def test_a_script_counts_its_spark_jobs_and_prints_what_it_likes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print(1)\n")
    job = from_script(str(tmp_path / "mine.py"), [])
    log = "".join(f"INFO DAGScheduler: Got job {number} (x)\n" for number in range(3))
    assert _said(job, log) == [f"submit: the script runs Spark job {number}" for number in range(3)]
    assert not Narrator(print, job).output(f"{TRAINING_LINE}{{}}")


def test_a_driver_in_a_container_is_waited_for() -> None:
    experiment = files.load("softmax-mnist-quick", ["deploy_mode=cluster"])
    log = "INFO yarn.Client: Application report for application_1_2 (state: RUNNING)"
    assert _said(experiment, log) == ["submit: waiting for the driver in its container"]
