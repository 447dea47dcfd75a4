"""Evaluates the stored model on the staged test set, and the current model between epochs."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.datasets.tfrecord import decode_block
from dlobd.job.description import Job
from dlobd.job.training import checkpointing
from dlobd.network.exchanges.base import Tensor, TensorFlow

EVALUATION_BATCH = 1000
EVALUATION_BYTES = 32 << 20  # maximum number and maximum size of the test samples in memory
Logits = Callable[[Tensor], Tensor]  # function from images to logits, both tensors


def evaluate(tf: TensorFlow, job: Job, storage: Storage) -> dict[str, Any]:
    """Return the number of test samples, and the accuracy of the stored model on them."""
    with tracing.span(kinds.EVALUATE), tempfile.TemporaryDirectory() as local:
        checkpointing.download(storage, f"{job.run_dir}/model", Path(local), kinds.MODEL)
        with tracing.span(kinds.LOAD_MODEL):
            model = tf.saved_model.load(local)
        samples, right = _count(tf, job, storage, model.logits)
    return {"samples": samples, "accuracy": right / samples if samples else 0.0}


class Evaluation:
    """Evaluation of the current model by one rank, on a copy outside of the exchange's scope."""

    def __init__(self, tf: TensorFlow, job: Job, model: Tensor, storage: Storage) -> None:
        self._tf = tf
        self._job = job
        self._model = model
        self._storage = storage
        self._copy: Tensor = None

    def __call__(self) -> tuple[int, int]:
        with tracing.span(kinds.EVALUATE):
            if self._copy is None:  # compile once
                self._copy = checkpointing.plain_copy(self._job, self._model)
                self._logits = checkpointing.logits(self._tf, self._job, self._copy)
            checkpointing.copy_values(self._copy, self._model)
            return _count(self._tf, self._job, self._storage, self._logits)


def _count(tf: TensorFlow, job: Job, storage: Storage, logits: Logits) -> tuple[int, int]:
    samples = correct = 0
    at_once = max(1, min(EVALUATION_BATCH, EVALUATION_BYTES // job.layout.record_bytes))
    for piece in storage.stream(job.test_path, at_once * job.layout.record_bytes, kinds.TEST_SET):
        images, labels = decode_block(piece, job.layout)
        with tracing.span(kinds.PREDICT) as span:
            predicted = logits(tf.constant(images)).numpy().argmax(axis=1)
            correct_here = int((predicted == labels).sum())
            span.note(samples=len(labels), right=correct_here)
        samples += len(labels)
        correct += correct_here
    return samples, correct
