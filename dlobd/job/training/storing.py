"""What the chief stores, and what it makes of what was stored: checkpoints, the model, its accuracy."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.datasets.tfrecord import decode_block
from dlobd.job.description import Job
from dlobd.tracing import names

EVALUATION_BATCH = 1000
EVALUATION_BYTES = 32 << 20
"""Test samples that are read, decoded and predicted at once, at most: so much of the test set is in memory."""


def checkpoint(tf: Any, job: Job, model: Any, storage: Storage, step: int) -> None:
    """Stores the model's variables as they are after `step` steps."""
    with tracing.span("tensorflow", names.CHECKPOINT), tempfile.TemporaryDirectory() as local:
        tf.train.Checkpoint(model=_plain_copy(job, model)).write(f"{local}/ckpt-{step}")
        _upload(storage, Path(local), f"{job.run_dir}/checkpoints", "checkpoint")


def save(tf: Any, job: Job, model: Any, storage: Storage) -> None:
    """Stores the model as a SavedModel, whose function `logits` maps images of any number to logits."""
    with tracing.span("tensorflow", names.SAVE_MODEL), tempfile.TemporaryDirectory() as local:
        exported = _plain_copy(job, model)
        spec = tf.TensorSpec([None, *job.layout.shape], tf.float32)
        exported.logits = tf.function(lambda images: exported(images, training=False), input_signature=[spec])
        tf.saved_model.save(exported, local)
        _upload(storage, Path(local), f"{job.run_dir}/model", names.MODEL)


def evaluate(tf: Any, job: Job, storage: Storage) -> dict[str, Any]:
    """Accuracy of the model as it was stored, on the test set as it was stored."""
    samples = right = 0
    with tracing.span("tensorflow", names.EVALUATE), tempfile.TemporaryDirectory() as local:
        _download(storage, f"{job.run_dir}/model", Path(local), names.MODEL)
        with tracing.span("tensorflow", names.LOAD_MODEL):
            model = tf.saved_model.load(local)
        at_once = max(1, min(EVALUATION_BATCH, EVALUATION_BYTES // job.layout.record_bytes))
        for piece in storage.stream(job.test_path, at_once * job.layout.record_bytes, names.TEST_SET):
            images, labels = decode_block(piece, job.layout)
            with tracing.span("tensorflow", names.PREDICT):
                predicted = model.logits(tf.constant(images)).numpy().argmax(axis=1)
            samples += len(labels)
            right += int((predicted == labels).sum())
    return {"samples": samples, "accuracy": right / samples if samples else 0.0}


def _plain_copy(job: Job, model: Any) -> Any:
    """The same model with the chief's values in variables that no exchange owns: saving it needs no other rank.

    All of them, moving statistics too: with those the stored model is evaluated."""
    copy = job.build_model()
    for variable, trained in zip(copy.variables, model.variables, strict=True):
        variable.assign(trained.read_value())
    return copy


def _upload(storage: Storage, local: Path, directory: str, purpose: str) -> None:
    for path in sorted(p for p in local.rglob("*") if p.is_file()):
        storage.write(f"{directory}/{path.relative_to(local)}", path.read_bytes(), purpose)


def _download(storage: Storage, directory: str, local: Path, purpose: str) -> None:
    for remote in storage.files(directory):
        path = local / remote.removeprefix(directory).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.read(remote, purpose))
