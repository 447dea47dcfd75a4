"""Accuracy on the staged test set: of the model as it was stored, and between epochs of the model as it is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.datasets.tfrecord import decode_block
from dlobd.job.description import Job
from dlobd.job.training import storing

EVALUATION_BATCH = 1000
EVALUATION_BYTES = 32 << 20
"""Test samples that are read, decoded and predicted at once, at most: so much of the test set is in memory."""

Logits = Callable[[Any], Any]
"""From images to logits, both tensors."""


def evaluate(tf: Any, job: Job, storage: Storage) -> dict[str, Any]:
    """Accuracy of the model as it was stored."""
    with tracing.span(kinds.EVALUATE), tempfile.TemporaryDirectory() as local:
        storing.download(storage, f"{job.run_dir}/model", Path(local), kinds.MODEL)
        with tracing.span(kinds.LOAD_MODEL):
            model = tf.saved_model.load(local)
        samples, right = _count(tf, job, storage, model.logits)
    return {"samples": samples, "accuracy": right / samples if samples else 0.0}


class Evaluation:
    """Of a model in training, by one rank alone: of a copy, whose variables no exchange owns."""

    def __init__(self, tf: Any, job: Job, model: Any, storage: Storage) -> None:
        self._tf = tf
        self._job = job
        self._model = model
        self._storage = storage
        self._copy: Any = None

    def __call__(self) -> tuple[int, int]:
        """Samples, and how many of them were right."""
        with tracing.span(kinds.EVALUATE):
            if self._copy is None:  # compiled once
                self._copy = storing.plain_copy(self._job, self._model)
                self._logits = storing.logits(self._tf, self._job, self._copy)
            storing.take_values(self._copy, self._model)
            return _count(self._tf, self._job, self._storage, self._logits)


def _count(tf: Any, job: Job, storage: Storage, logits: Logits) -> tuple[int, int]:
    """Samples of the test set, and how many of them were right."""
    samples = right = 0
    at_once = max(1, min(EVALUATION_BATCH, EVALUATION_BYTES // job.layout.record_bytes))
    for piece in storage.stream(job.test_path, at_once * job.layout.record_bytes, kinds.TEST_SET):
        images, labels = decode_block(piece, job.layout)
        with tracing.span(kinds.PREDICT) as span:
            predicted = logits(tf.constant(images)).numpy().argmax(axis=1)
            found = int((predicted == labels).sum())
            span.note(samples=len(labels), right=found)
        samples += len(labels)
        right += found
    return samples, right
