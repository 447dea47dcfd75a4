"""A rank from its first line to its marker, with real TensorFlow, in a process of its own; its files lie in a
directory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd.job.datasets import tfrecord
from dlobd.job.description import Job, Markers, part_name
from dlobd.job.launchers.base import Node
from dlobd.job.training import trainer
from tests.unit.test_job import job

SHAPE, CLASSES = (8, 8, 2), 3

TRAINING: dict[str, Any] = {
    "model": "resnet20",
    "optimiser": "momentum",
    "loss": "softmax-cross-entropy",
    "exchange": "tf-collectives",
    "input": "read",
    "workers": 1,
    "epochs": 4,
    "steps": 24,
    "batch_size": 10,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "num_epochs_per_decay": 0.0,
    "learning_rate_decay_factor": 0.0,
    "warmup_epochs": 0.5,
    "augment": "none",
    "checkpoint_every_steps": 12,
    "image_shape": SHAPE,
    "dtype": "float32",
    "classes": CLASSES,
}


def prepared(directory: Path, **changes: Any) -> Job:
    """A job of one rank whose classes are patterns in noise, staged."""
    paths = {"train_dir": str(directory), "test_path": str(directory / "test.tfrecord")}
    made = job(directory, **{**TRAINING, **paths, **changes})
    rng = np.random.default_rng(0)
    patterns = rng.normal(0, 1, (CLASSES, *SHAPE))
    for name, samples in ((part_name(0), 60), ("test.tfrecord", 30)):
        labels = rng.integers(0, CLASSES, samples)
        images = (patterns[labels] + rng.normal(0, 0.1, (samples, *SHAPE))).astype(np.float32)
        (directory / name).write_bytes(tfrecord.encode(images, labels, made.layout))
    (directory / "run" / "done").mkdir(parents=True)
    (directory / "job.json").write_text(made.to_json())
    return made


def train(directory: Path) -> subprocess.CompletedProcess[str]:
    """One rank, in a process of its own: this module."""
    command = [sys.executable, "-m", __name__, str(directory / "job.json")]
    return subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)


@pytest.mark.slow
def test_a_deep_model_is_trained_stored_and_evaluated(tmp_path: Path) -> None:
    """Momentum, weight decay, a schedule and batch normalisation in one run: it learns what there is to learn, and so
    does what was stored, which is evaluated with the moving statistics."""
    told = prepared(tmp_path)
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr
    assert Markers(told).finished() == {0}
    result = json.loads((tmp_path / "run" / "done" / "rank-0.json").read_text())
    assert (result["steps"], result["samples"], result["test"]["samples"]) == (24, 240, 30)
    assert result["losses"][-1] < 0.5 * result["losses"][0]
    assert result["test"]["accuracy"] > 0.9
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {"ckpt-12.index", "ckpt-24.index"} <= checkpoints


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_rank(tmp_path: Path) -> None:
    """At the step at which it is seen, with a line in the failure marker that says what to do."""
    told = prepared(tmp_path, model="mlp", optimiser="sgd", schedule="constant", learning_rate=1e30)
    assert train(tmp_path).returncode == 1
    assert Markers(told).finished() == set()
    assert Markers(told).failure() in {
        f"rank 0 (chief): the loss became {what} at step 1: lower learning_rate" for what in ("nan", "inf")
    }


if __name__ == "__main__":
    trainer.main(Job.read(sys.argv[1]), Node("chief", 0, ("",)))
