"""The MLPerf-style log of a run, before the compliance checker of `mlperf-logging`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlobd import cli
from dlobd.bundle.store import Bundle
from dlobd.experiment import own_job
from dlobd.recompute import computed as record
from dlobd.schema import Experiment
from tests.epoch_marks import DATA, marked

RULES = Path(__file__).with_name("mlperf_style.yaml")
Told = list[dict[str, Any]]


def complies(log: Path) -> bool:
    module = [sys.executable, "-m", "mlperf_logging.compliance_checker"]
    options = ["--config", str(RULES), "--log_output", str(log.with_suffix(".checked"))]
    checked = subprocess.run([*module, *options, str(log)], capture_output=True, text=True, check=False)
    assert "Traceback" not in checked.stderr, checked.stderr
    assert ("SUCCESS" in checked.stderr) == (checked.returncode == 0)
    return checked.returncode == 0


def exported(run: str, directory: Path, target: float, evaluated: tuple[int, ...] = (1, 2, 3)) -> tuple[Bundle, Path]:
    """A real run with marks of epochs, and its log by the command line."""
    bundle = marked(run, directory, evaluated)
    stored = bundle.read_json()
    experiment = own_job.from_dict(stored["configuration"])
    assert isinstance(experiment, Experiment)
    experiment = dataclasses.replace(experiment, target_accuracy=target, evaluate_every_epochs=1)
    found = stored | {"configuration": dataclasses.asdict(experiment)} | record.computed(bundle, experiment).to_json()
    bundle.write(json.loads(json.dumps(found)))
    log = directory / "run.log"
    assert cli.main(["export", str(bundle.path), "--format", "mlperf-log", "-o", str(log)]) == 0
    return bundle, log


def told(log: Path) -> Told:
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()]


def write(log: Path, events: Told) -> Path:
    log.write_text("".join(f":::MLLOG {json.dumps(event)}\n" for event in events))
    return log


@pytest.mark.parametrize("run", ["quick-run", "native-run"])
def test_the_log_of_a_real_run_complies(run: str, tmp_path: Path) -> None:
    """The checker accepts it. Its clock is the wall clock, from the first touch of
    the data to the end of the evaluation that reached the target; what came before is initialisation."""
    bundle, log = exported(run, tmp_path, target=0.7)
    assert complies(log)
    events = told(log)
    at = {event["key"]: event["time_ms"] for event in events}
    found = bundle.read()
    assert found.first_touch is not None
    anchor = json.loads((bundle.path / "evidence/window.json").read_text())["anchors"][0]
    begun_ms = (found.window.start_ns - anchor["monotonic_ns"] + anchor["wall_ns"]) // 1_000_000
    assert at["init_start"] == begun_ms
    assert at["run_stop"] - at["init_start"] == pytest.approx(found.time_to_accuracy.from_submit_ns / 1e6, abs=1)
    assert at["run_stop"] - at["run_start"] == pytest.approx(found.time_to_accuracy.from_first_touch_ns / 1e6, abs=1)
    assert at["init_stop"] == at["run_start"]
    accuracies = [(e["metadata"]["epoch_num"], e["value"]) for e in events if e["key"] == "eval_accuracy"]
    assert accuracies == [(1, 0.5), (2, 0.75)]
    assert events[-1]["metadata"] == {"status": "success", "target_accuracy": 0.7}


def test_a_missed_target_is_aborted(tmp_path: Path) -> None:
    _, log = exported("quick-run", tmp_path, target=0.9, evaluated=(2,))
    assert complies(log)
    events = told(log)
    assert events[-1]["metadata"]["status"] == "aborted"
    assert [e["metadata"]["epoch_num"] for e in events if e["key"] == "eval_accuracy"] == [2, 3]
    assert [e["metadata"]["epoch_num"] for e in events if e["key"] == "epoch_stop"] == [1, 2, 3]


def test_without_a_target_a_good_run_is_a_success(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    assert cli.main(["export", str(DATA / "quick-run"), "--format", "mlperf-log", "-o", str(log)]) == 0
    assert complies(log)
    events = told(log)
    assert events[-1]["metadata"]["status"] == "success"
    assert [e["metadata"]["epoch_num"] for e in events if e["key"] == "epoch_stop"] == [1]


def without(key: str) -> Any:
    return lambda events: [event for event in events if event["key"] != key]


def changed(key: str, **values: Any) -> Any:
    return lambda events: [event | values if event["key"] == key else event for event in events]


@pytest.mark.parametrize(
    "mutilate",
    [
        without("run_start"),
        without("init_stop"),
        without("submission_benchmark"),
        without("cache_clear"),
        without("train_samples"),
        without("eval_accuracy"),
        without("epoch_stop"),
        without("run_stop"),
        changed("eval_accuracy", value=1.5),
        changed("eval_accuracy", value=0.1),  # below the target of a success
        changed("run_stop", metadata={}),
        changed("run_stop", time_ms=0),
        changed("epoch_stop", metadata={"epoch_num": 7}),
        changed("submission_division", value="closed"),
        lambda events: [*events, events[-1]],
        lambda events: events[::-1],
    ],
)
def test_a_mutilated_log_does_not_comply(mutilate: Any, tmp_path: Path) -> None:
    _, log = exported("quick-run", tmp_path, target=0.7)
    assert not complies(write(log, mutilate(told(log))))


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("own-run", "is of your own script: dlobd does not know its epochs. Next: export another"),
        (
            "killed-trainer",
            "has no evaluated epoch: there is no accuracy to log. Next: dlobd run softmax-mnist-quick --set ",
        ),
    ],
)
def test_what_has_no_accuracies_is_one_line(
    run: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    assert cli.main(["export", str(DATA / run), "--format", "mlperf-log", "-o", str(log)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert line in said.err
    assert not log.exists()


def test_a_file_is_not_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, log = exported("native-run", tmp_path, target=0.0)
    assert cli.main(["export", str(bundle.path), "--format", "mlperf-log", "-o", str(log)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert cli.main(["export", str(bundle.path), "--format", "mlperf-log", "-o", str(log), "--force"]) == 0
    assert cli.main(["export", str(bundle.path), "--format", "csv"]) == 2
    assert "csv" in capsys.readouterr().err
