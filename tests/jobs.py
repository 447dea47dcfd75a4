"""Jobs of one machine: their descriptions, and the staged samples of one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dlobd.job.datasets import tfrecord
from dlobd.job.description import Job, part_name
from dlobd.schema import DEFAULTS as EXPERIMENT_DEFAULTS

EXAMPLE = {
    "name": "a b",
    "model": "softmax-regression",
    "learning_rate": 0.5,
    "dtype": "uint8",
    "classes": 10,
    "channel": "tcp",
}


DEFAULTS: dict[Any, Any] = {str: "", int: 1, float: 0.5, tuple[int, ...]: (28, 28)}


def job(directory: Path, **changes: Any) -> Job:
    """A job whose storage is this machine's own directories."""
    fields = {field.name: field.type for field in dataclasses.fields(Job)}
    values = {name: EXPERIMENT_DEFAULTS.get(name, DEFAULTS.get(kind, "")) for name, kind in fields.items()}
    values |= {**EXAMPLE, "run_dir": str(directory / "run"), "webhdfs_url": "", **changes}
    steps = values.pop("steps", values["epochs"])
    samples = steps // values["epochs"] * values["workers"] * values["batch_size"]
    return Job(**{**values, "train_samples": samples})


SHAPE, CLASSES = (8, 8, 2), 3

TRAINING: dict[str, Any] = {
    "model": "resnet20",
    "optimiser": "momentum",
    "loss": "softmax-cross-entropy",
    "channel": "tcp",
    "exchange": "tf-ring",
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


class SilentMarkers:
    """Markers of a job in which no rank has ended, and a rank has failed if there is a cause."""

    def __init__(self, cause: str | None = None) -> None:
        self._cause = cause

    def finished(self) -> frozenset[int]:
        return frozenset()

    def failure(self) -> str | None:
        return self._cause

    final_failure = failure

    def wait(self, known: frozenset[int], within_s: float) -> None:
        raise AssertionError(known)

    def report_failure(self, cause: str) -> None:
        raise AssertionError(cause)

    report_death = report_failure
