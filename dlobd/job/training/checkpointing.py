"""Writes checkpoints and the trained model, on the chief, and reads the trained model."""

import tempfile
from pathlib import Path

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.description import Job
from dlobd.network.exchanges.base import Tensor, TensorFlow


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
