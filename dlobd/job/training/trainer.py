"""One rank: reads top to bottom as what a synchronous data-parallel trainer does.

    import TensorFlow -> join the other ranks -> build -> steps -> (chief) save, read back, evaluate -> done-marker

Every step is a collective: the span `step k` of all ranks forms one rendezvous, which is how the attribution knows
that a rank waited for a slower one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.datasets.tfrecord import decode_block
from dlobd.job.description import Job, Markers
from dlobd.job.launchers.base import Node
from dlobd.job.launchers.framework import import_tensorflow
from dlobd.job.training.deadline import Deadlines
from dlobd.job.training.inputs import batches
from dlobd.tracing import names
from dlobd.tracing.clock import monotonic_ns

_STACK = (
    "Graph execution error",
    "Detected at node",
    "at org.",
    "at java",
    'File "',
    "[Previous line repeated",
    "[[{{node",
)
"""How the lines begin with which TensorFlow tells where in the graph an error arose, and Java where in its code."""


def main(job: Job, node: Node) -> None:
    """Trains as `node.rank`; leaves a done-marker, or a failure marker with the cause in one line."""
    markers = Markers(job)
    who = f"rank {node.rank} ({node.role})"

    def fail(cause: str) -> None:
        tracing.instant(names.RANK_FAILED, cause=f"{who}: {cause}")
        tracing.flush()  # HDFS may not answer any more
        markers.report_failure(f"{who}: {cause}")

    def give_up(cause: str) -> NoReturn:
        print(f"dlobd: {who}: {cause}", file=sys.stderr, flush=True)
        fail(cause)
        os._exit(1)  # the main thread is where no exception reaches it

    try:
        with tracing.span("tensorflow", names.TRAINER):
            result = _train(job, node, Deadlines(give_up))
        markers.report_done(node.rank, result)
    except BaseException as error:
        fail(f"{type(error).__name__}: {_words(error)}")
        raise


def _words(error: BaseException) -> str:
    """What an error says, without the stack that TensorFlow or HDFS puts into its message."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_STACK))


def _train(job: Job, node: Node, deadlines: Deadlines) -> dict[str, Any]:
    import_tensorflow()
    import tensorflow as tf

    tracing.instant(names.TENSORFLOW_IMPORTED, version=tf.__version__, path=tf.__file__)

    with tracing.span("tensorflow", names.JOIN_RANKS, {"rendezvous": "join ranks"}):
        # TensorFlow starts its gRPC server here and returns once all ranks have
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=tf.distribute.experimental.CommunicationImplementation.RING
            )
        )
    tracing.instant(names.RANKS_JOINED)

    with tracing.span("tensorflow", names.BUILD):
        tf.random.set_seed(job.seed)
        with strategy.scope():
            model = job.build_model()
        step = _step_function(tf, strategy, model, job.learning_rate, node.ranks)

    storage = job.storage()
    incoming = batches(tf, job, node, deadlines)
    losses: list[float] = []
    samples = 0
    began_ns = None
    for k in range(job.steps):
        batch = next(incoming, None)
        if batch is None:
            raise RuntimeError(f"the input ended after {k} of {job.steps} steps")
        if k == 0:
            tracing.instant(names.FIRST_BATCH)
            began_ns = monotonic_ns()
        with tracing.span("tensorflow", names.FIRST_STEP if k == 0 else "step", {"rendezvous": f"step {k}"}):
            losses.append(float(step(*batch)))
        if k == 0:
            tracing.instant(names.FIRST_STEP_DONE)
        samples += len(batch[1])
        if node.rank == 0 and job.checkpoint_every_steps and (k + 1) % job.checkpoint_every_steps == 0:
            _checkpoint(tf, job, model, storage, k + 1)
    tracing.instant(names.LAST_STEP_DONE)
    ended_ns = monotonic_ns()

    result: dict[str, Any] = {
        "rank": node.rank,
        "role": node.role,
        "index": node.index,
        "steps": len(losses),
        "samples": samples,
        "losses": losses,
        # from the first batch to the last step, also where nothing is recorded
        "loop_ns": ended_ns - began_ns if began_ns is not None else None,
    }
    if node.rank == 0:
        _save(tf, job, model, storage)
        tracing.instant(names.SAVED)
        result["test"] = _evaluate(tf, job, storage)
        tracing.instant(names.EVALUATED)
    return result


def _step_function(tf: Any, strategy: Any, model: Any, learning_rate: float, ranks: int) -> Any:
    """A compiled step: mean loss and gradients over all ranks, then the same update everywhere."""

    def replica_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        # one collective a step: the loss travels with the gradients
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, [loss, *gradients])
        for variable, gradient in zip(model.trainable_variables, total[1:], strict=True):
            variable.assign_sub(learning_rate * gradient / ranks)
        return total[0] / ranks

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(images: Any, labels: Any) -> Any:
        per_replica = strategy.run(replica_step, args=(images, labels))
        return strategy.experimental_local_results(per_replica)[0]

    return step


def _plain_copy(job: Job, model: Any) -> Any:
    """The same model with the chief's values in variables that no strategy owns: saving it needs no other rank."""
    copy = job.build_model()
    for variable, trained in zip(copy.trainable_variables, model.trainable_variables, strict=True):
        variable.assign(trained.read_value())
    return copy


def _checkpoint(tf: Any, job: Job, model: Any, storage: Storage, step: int) -> None:
    with tracing.span("tensorflow", names.CHECKPOINT), tempfile.TemporaryDirectory() as local:
        tf.train.Checkpoint(model=_plain_copy(job, model)).write(f"{local}/ckpt-{step}")
        _upload(storage, Path(local), f"{job.run_dir}/checkpoints", "checkpoint")


def _save(tf: Any, job: Job, model: Any, storage: Storage) -> None:
    with tracing.span("tensorflow", names.SAVE_MODEL), tempfile.TemporaryDirectory() as local:
        exported = _plain_copy(job, model)
        images = tf.TensorSpec([None, job.image_values], tf.float32)
        exported.logits = tf.function(exported.__call__, input_signature=[images])
        tf.saved_model.save(exported, local)
        _upload(storage, Path(local), f"{job.run_dir}/model", "model")


def _upload(storage: Storage, local: Path, directory: str, purpose: str) -> None:
    for path in sorted(p for p in local.rglob("*") if p.is_file()):
        storage.write(f"{directory}/{path.relative_to(local)}", path.read_bytes(), purpose)


def _download(storage: Storage, directory: str, local: Path, purpose: str) -> None:
    for remote in storage.files(directory):
        path = local / remote.removeprefix(directory).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.read(remote, purpose))


def _evaluate(tf: Any, job: Job, storage: Storage) -> dict[str, Any]:
    """Accuracy of the model as it was stored, on the test set as it was stored."""
    with tracing.span("tensorflow", names.EVALUATE), tempfile.TemporaryDirectory() as local:
        _download(storage, f"{job.run_dir}/model", Path(local), "model")
        with tracing.span("tensorflow", names.LOAD_MODEL):
            model = tf.saved_model.load(local)
        images, labels = decode_block(storage.read(job.test_path, "test set"), job.layout)
        with tracing.span("tensorflow", names.PREDICT):
            predicted = model.logits(tf.constant(images)).numpy().argmax(axis=1)
        return {"samples": len(labels), "accuracy": float((predicted == labels).mean())}
