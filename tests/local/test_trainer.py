"""A rank from its first line to its marker, with real TensorFlow, in a process of its own; its files lie in a
directory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dlobd import tracing
from dlobd.job.description import Job, Markers
from dlobd.job.launchers.base import Node
from dlobd.job.training import trainer
from tests import forks
from tests.jobs import prepared
from tests.recorded import read_all


def train(directory: Path, **environment: str) -> Any:
    """One rank, in a process of its own: this module."""
    return forks.first(["-m", "tests.local.test_trainer", directory / "job.json"], **environment)


@pytest.mark.slow
def test_a_deep_model_is_trained_stored_and_evaluated(tmp_path: Path) -> None:
    told = prepared(tmp_path)
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr
    assert Markers(told).read()[0] == {0}
    result = json.loads((tmp_path / "run" / "done" / "rank-0.json").read_text())
    assert (result["steps"], result["samples"], result["test"]["samples"]) == (24, 240, 30)
    assert result["losses"][-1] < 0.5 * result["losses"][0]
    assert result["test"]["accuracy"] > 0.9
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {"ckpt-12.index", "ckpt-24.index"} <= checkpoints


@pytest.mark.slow
def test_epochs_are_evaluated_between_steps(tmp_path: Path) -> None:
    """Each epoch's end is an instant with the mean loss of its steps; after every second one the model as it is then is
    evaluated; the last evaluation comes after the instant of the last step, and says what the stored model's says."""
    prepared(tmp_path, evaluate_every_epochs=2)
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "done" / "rank-0.json").read_text())
    (rank,) = read_all(tmp_path / "spans")
    told = [instant.attrs for instant in rank.instants if instant.name == "epoch done"]
    assert [attrs["epoch"] for attrs in told] == [1, 2, 3, 4]
    means = [fmean(result["losses"][first : first + 6]) for first in range(0, 24, 6)]
    assert [attrs["loss"] for attrs in told] == pytest.approx(means)
    evaluated = [dict(instant.attrs) for instant in rank.instants if instant.name == "epoch evaluated"]
    assert evaluated == result["evaluations"]
    assert [(found["epoch"], found["samples"]) for found in evaluated] == [(2, 30), (4, 30)]
    assert evaluated[1]["right"] / 30 == result["test"]["accuracy"]
    assert len(rank.named("evaluate")) == 3  # and once of the model as it was stored
    (last,) = [instant.at_ns for instant in rank.instants if instant.name == "last step done"]
    assert rank.steps()[-1].end_ns <= last <= rank.named("evaluate")[1].start_ns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "ended_by", "steps"),
    [
        ({"max_steps": 7}, "max_steps", 7),
        ({"max_steps": 100}, "epochs", 24),
        ({"evaluate_every_epochs": 2, "target_accuracy": 0.01}, "target_accuracy", 12),
        ({"max_steps": 12, "evaluate_every_epochs": 2, "target_accuracy": 0.01}, "max_steps", 12),
        ({"evaluate_every_epochs": 1, "target_accuracy": 1.0, "learning_rate": 1e-6}, "epochs", 24),
    ],
)
def test_training_ends_at_the_first_limit(tmp_path: Path, limits: dict[str, Any], ended_by: str, steps: int) -> None:
    """With steps, or with the epoch whose evaluation reaches the accuracy; what was trained is stored and evaluated."""
    prepared(tmp_path, model="mlp", optimiser="sgd", momentum=0.0, schedule="constant", **limits)
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "done" / "rank-0.json").read_text())
    assert (result["ended_by"], result["steps"], result["samples"]) == (ended_by, steps, 10 * steps)
    assert result["test"]["samples"] == 30
    (rank,) = read_all(tmp_path / "spans")
    (last,) = [instant.at_ns for instant in rank.instants if instant.name == "last step done"]
    end_ns = rank.steps()[-1].end_ns
    assert end_ns <= last <= min(span.start_ns for span in rank.named("evaluate") if span.start_ns >= end_ns)


@pytest.mark.slow
def test_training_ends_in_time(tmp_path: Path) -> None:
    prepared(tmp_path, model="mlp", optimiser="sgd", momentum=0.0, epochs=10_000, steps=60_000, max_seconds=2)
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "done" / "rank-0.json").read_text())
    assert result["ended_by"] == "max_seconds"
    assert result["loop_ns"] >= 2 * 10**9
    assert 1 < result["steps"] == len(result["losses"]) < 60_000


@pytest.mark.slow
def test_a_rank_says_what_it_used(tmp_path: Path) -> None:
    prepared(tmp_path, model="mlp", optimiser="sgd", momentum=0.0, max_steps=2, intra_op_threads=3, inter_op_threads=5)
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "run" / "done" / "rank-0.json").read_text())["machine"]
    cores = len(os.sched_getaffinity(0))
    assert found == {"device": "cpu", "cores": cores, "intra_op_threads": 3, "inter_op_threads": 5}


@pytest.mark.slow
def test_a_rank_without_its_gpu_fails(tmp_path: Path) -> None:
    """Nothing was assigned to it, or TensorFlow does not see what was: it says which, and takes no step on the CPU."""
    told = prepared(tmp_path, model="mlp", optimiser="sgd", momentum=0.0, device="gpu")
    assert train(tmp_path).returncode == 1
    assert Markers(told).read()[1] == (
        "rank 0 (chief): RuntimeError: device gpu: the scheduler assigned no GPU to this rank"
    )
    (tmp_path / "run" / "done" / "failed").unlink()
    assert train(tmp_path, CUDA_VISIBLE_DEVICES="99").returncode == 1
    assert Markers(told).read()[1] == (
        "rank 0 (chief): RuntimeError: TensorFlow's settings differ from the job's: device cpu, although this rank was "
        "assigned GPU 99"
    )
    assert Markers(told).read()[0] == set()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_rank(tmp_path: Path) -> None:
    told = prepared(tmp_path, model="mlp", optimiser="sgd", schedule="constant", learning_rate=1e30)
    assert train(tmp_path).returncode == 1
    assert Markers(told).read()[0] == set()
    assert Markers(told).read()[1] in {
        f"rank 0 (chief): the loss became {what} at step 1: lower learning_rate" for what in ("nan", "inf")
    }


if __name__ == "__main__":
    tracing.start(str(Path(sys.argv[1]).parent / "spans"), "chief")
    trainer.main(Job.read(sys.argv[1]), Node(0, ("",)))
