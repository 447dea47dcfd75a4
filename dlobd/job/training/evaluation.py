"""Stores and evaluates the model on the chief: checkpoints and the trained model, the stored model on the staged test
set, and the current model between epochs."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.datasets.tfrecord import decode_block
from dlobd.job.description import Job
from dlobd.network.exchanges.base import Tensor, TensorFlow

EVALUATION_BATCH = 1000
EVALUATION_BYTES = 32 << 20  # maximum number and maximum size of the test samples in memory
Logits = Callable[[Tensor], Tensor]  # function from images to logits, both tensors


def checkpoint(tf: TensorFlow, job: Job, model: Tensor, storage: Storage, step: int) -> None:
    """Store the model's variables after `step` steps."""
    with tracing.span(kinds.CHECKPOINT), tempfile.TemporaryDirectory() as local:
        tf.train.Checkpoint(model=plain_copy(job, model)).write(f"{local}/ckpt-{step}")
        _upload(storage, Path(local), f"{job.run_dir}/checkpoints", "checkpoint")


def save(tf: TensorFlow, job: Job, model: Tensor, storage: Storage) -> None:
    """Store the model as a SavedModel with a function `logits` from any number of images to logits."""
    with tracing.span(kinds.SAVE_MODEL), tempfile.TemporaryDirectory() as local:
        exported = plain_copy(job, model)
        exported.logits = logits(tf, job, exported)
        tf.saved_model.save(exported, local)
        _upload(storage, Path(local), f"{job.run_dir}/model", kinds.MODEL)


def logits(tf: TensorFlow, job: Job, model: Tensor) -> Tensor:
    """Compile a function from any number of images to the model's logits."""
    spec = tf.TensorSpec([None, *job.layout.shape], tf.float32)
    return tf.function(lambda images: model(images, training=False), input_signature=[spec])


def plain_copy(job: Job, model: Tensor) -> Tensor:
    """Copy the model to variables outside of the exchange's scope, so that saving the copy needs no other rank.

    The copy includes the moving statistics, which the evaluation of the stored model uses."""
    copy = job.build_model()
    copy_values(copy, model)
    return copy


def copy_values(copy: Tensor, model: Tensor) -> None:
    """Copy the current values of this rank's model to `copy`."""
    for variable, trained in zip(copy.variables, model.variables, strict=True):
        variable.assign(trained.read_value())


def _upload(storage: Storage, local: Path, directory: str, purpose: str) -> None:
    for path in sorted(p for p in local.rglob("*") if p.is_file()):
        storage.write(f"{directory}/{path.relative_to(local)}", path.read_bytes(), purpose)


def download(storage: Storage, directory: str, local: Path, purpose: str) -> None:
    """Copy all files below a directory of the storage to a local directory."""
    for remote in storage.files(directory):
        path = local / remote.removeprefix(directory).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.read(remote, purpose))


def evaluate(tf: TensorFlow, job: Job, storage: Storage) -> dict[str, Any]:
    """Return the number of test samples, and the accuracy of the stored model on them."""
    with tracing.span(kinds.EVALUATE), tempfile.TemporaryDirectory() as local:
        download(storage, f"{job.run_dir}/model", Path(local), kinds.MODEL)
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
                self._copy = plain_copy(self._job, self._model)
                self._logits = logits(self._tf, self._job, self._copy)
            copy_values(self._copy, self._model)
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
