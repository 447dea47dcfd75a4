"""Trains as one rank, data-parallel with the other ranks.

    import TensorFlow -> join the other ranks -> build -> steps -> (chief) save, read back, evaluate -> done-marker

    after a step            the chief writes a checkpoint, if due
    after an epoch          records the mean loss; the chief evaluates, if due, while other ranks wait in the next step

All ranks take the same steps. Training ends with the first of these steps:

    `epochs`, `max_steps`   the last step that they allow
    `max_seconds`           the first step that any rank begins more than this time after its first batch; the rank
                            votes for the end in the step's exchange
    `target_accuracy`       the last step of the first epoch whose evaluation reaches it; the chief votes for the end in
                            a separate exchange after each evaluation (`StopVote`)

With a synchronous exchange, every step is recorded as a collective of all ranks. From it, the attribution derives the
waits of a rank for a slower rank.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from statistics import fmean
from typing import Any, NoReturn

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import EXCHANGES, LOSSES, OPTIMISERS, SCHEDULES
from dlobd.hadoop.file_system import Storage
from dlobd.job import device_config
from dlobd.job.description import Job, Markers
from dlobd.job.launchers.base import Node, role_of
from dlobd.job.launchers.imports import import_tensorflow
from dlobd.job.rank_status import reporting_steps
from dlobd.job.training.evaluation import Evaluation, checkpoint, evaluate, save
from dlobd.job.training.inputs import Batch, Deadlines, batches
from dlobd.job.training.step import Step, Workload
from dlobd.network.exchanges.base import Exchange, Settings, Tensor, TensorFlow
from dlobd.tracing.clock import monotonic_ns

_STACK = re.compile(
    r'Graph execution error|Detected at node|at org\.|at java|File "|\[Previous line repeated|\[\[\{\{node'
)
"""Beginnings of message lines that only locate an error in TensorFlow's graph, or in Python or Java code."""


def main(job: Job, node: Node) -> None:
    """Train as `node.rank`; write a done-marker, or a failure marker with the cause in one line."""
    markers = Markers(job)
    role, _ = role_of(node.rank)
    name = f"rank {node.rank} ({role})"

    def fail(cause: str) -> None:
        tracing.instant(kinds.RANK_FAILED, cause=f"{name}: {cause}")
        tracing.flush()  # before a request to HDFS, which may hang
        markers.report_failure(f"{name}: {cause}")

    def give_up(cause: str) -> NoReturn:
        print(f"dlobd: {name}: {cause}", file=sys.stderr, flush=True)
        fail(cause)
        os._exit(1)  # exit, because no exception can reach the main thread

    try:
        with tracing.span(kinds.TRAINER):
            result = _train(job, node, Deadlines(give_up))
        markers.report_done(node.rank, result)
    except FloatingPointError as error:  # the loss diverged; no component failed
        tracing.instant(kinds.DIVERGED)
        fail(str(error))
        raise
    except BaseException as error:
        fail(f"{type(error).__name__}: {_message(error)}")
        raise


def _message(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not _STACK.match(line))


def _train(job: Job, node: Node, deadlines: Deadlines) -> dict[str, Any]:
    import_tensorflow()
    import tensorflow as tf

    tracing.instant(kinds.TENSORFLOW_IMPORTED, version=tf.__version__, path=tf.__file__)

    device_config.configure(tf, job)
    settings = Settings(job.channel, job.library, job.exchange_fusion_mb << 20, job.exchange_servers)
    exchange: Exchange = EXCHANGES.get(job.exchange)(settings)
    os.environ.update(node.environment)
    with tracing.span(kinds.JOIN_RANKS):
        exchange.join(tf, node.peers, node.rank)
    tracing.instant(kinds.RANKS_JOINED)
    settings_used = device_config.effective(tf, job)

    with tracing.span(kinds.BUILD):
        tf.random.set_seed(job.seed)
        with exchange.scope():
            model = job.build_model()
            optimiser = OPTIMISERS.get(job.optimiser)(tf, model.trainable_variables, job)
            workload = Workload(model, LOSSES.get(job.loss), optimiser, SCHEDULES.get(job.schedule))
            step = Step(tf, job, workload, exchange)
        stop_vote = StopVote(tf, job, exchange)

    storage = job.storage()
    loop = Loop(tf, job, node, step, stop_vote, model, storage)
    result = loop.run(batches(tf, job, node, deadlines)) | {"machine": settings_used}
    exchange.close()  # all ranks close the exchange before the chief saves, so that they do not wait for the chief
    if node.feed and result["steps"] < job.fed_epochs * job.steps_per_epoch:
        node.feed.stop()
    if node.rank == 0:
        save(tf, job, model, storage)
        tracing.instant(kinds.SAVED)
        result["test"] = evaluate(tf, job, storage)
        tracing.instant(kinds.EVALUATED)
    return result


class Loop:
    """Training loop of a rank."""

    def __init__(
        self, tf: TensorFlow, job: Job, node: Node, step: Step, stop_vote: "StopVote", model: Tensor, storage: Storage
    ) -> None:
        self._tf = tf
        self._job = job
        self._rank = node.rank
        self._step = step
        self._stop_vote = stop_vote
        self._model = model
        self._storage = storage
        self._evaluation = Evaluation(tf, job, model, storage)
        self._losses: list[float] = []
        self._evaluations: list[dict[str, int]] = []
        self._samples = 0
        self._start_ns = 0

    def run(self, incoming: Iterator[Batch]) -> dict[str, Any]:
        """Take all steps, and return the rank's report.

        Raises RuntimeError if the input ends early, FloatingPointError if the loss is not finite.
        """
        ended_by, ended_ns = "", 0
        with reporting_steps(self._losses) if self._rank == 0 else nullcontext():
            while not ended_by:
                ended_by = self._take(incoming)
                ended_ns = monotonic_ns()
                if ended_by:
                    tracing.instant(kinds.LAST_STEP_DONE)
                if self._after_step(last=bool(ended_by)):
                    ended_by = "target_accuracy"
                    tracing.instant(kinds.LAST_STEP_DONE, ended_ns)
        role, index = role_of(self._rank)
        return {
            "rank": self._rank,
            "role": role,
            "index": index,
            "steps": len(self._losses),
            "samples": self._samples,
            "losses": self._losses,
            "evaluations": self._evaluations,
            "ended_by": ended_by,
            # from the first batch to the last step; measured also without a recorder
            "loop_ns": ended_ns - self._start_ns,
        }

    def _take(self, incoming: Iterator[Batch]) -> str:
        """Take a step; return the setting (such as max_steps) that ends training with this step, else an empty string.

        The evaluation after the step may also end training."""
        job, k = self._job, len(self._losses)
        batch = next(incoming, None)
        if batch is None:
            raise RuntimeError(f"the input ended after {k} of {job.most_steps} steps")
        if k == 0:
            tracing.instant(kinds.FIRST_BATCH)
            self._start_ns = monotonic_ns()
        late = job.max_seconds > 0 and monotonic_ns() - self._start_ns >= job.max_seconds * 1_000_000_000
        loss, stop = self._step(k, *batch, stop=late)
        if k == 0:
            tracing.instant(kinds.FIRST_STEP_DONE)
        self._losses.append(loss)
        self._samples += len(batch[1])
        if k + 1 == job.most_steps:
            return "epochs" if k + 1 == job.steps else "max_steps"
        return "max_seconds" if stop else ""

    def _after_step(self, last: bool) -> bool:
        """Write a checkpoint and evaluate, if due. Return True if the ranks agree that the target accuracy is reached;
        they do not vote after the last step."""
        job, taken = self._job, len(self._losses)
        if self._rank == 0 and job.checkpoint_every_steps and taken % job.checkpoint_every_steps == 0:
            checkpoint(self._tf, job, self._model, self._storage, taken)
        epoch, rest = divmod(taken, job.steps_per_epoch)
        if rest:
            return False
        tracing.instant(kinds.EPOCH_DONE, epoch=epoch, loss=fmean(self._losses[-job.steps_per_epoch :]))
        if not job.evaluate_every_epochs or epoch % job.evaluate_every_epochs:
            return False
        reached = False
        if self._rank == 0:
            samples, correct = self._evaluation()
            tracing.instant(kinds.EPOCH_EVALUATED, epoch=epoch, samples=samples, right=correct)
            self._evaluations.append({"epoch": epoch, "samples": samples, "right": correct})
            reached = (correct / samples if samples else 0.0) >= job.target_accuracy
        return job.target_accuracy > 0 and not last and self._stop_vote(epoch, reached)


class StopVote:
    """Vote of all ranks on the end of training, through their exchange. All ranks must take part in each vote."""

    def __init__(self, tf: TensorFlow, job: Job, exchange: Exchange) -> None:
        self._tf = tf
        self._ranks = job.workers
        self._exchange = exchange
        self._kind = kinds.AGREE if exchange.inside_step else kinds.AGREE_OUTSIDE
        self._vote: Callable[[Tensor], Tensor] = self._reduce
        if exchange.inside_step:
            self._vote = tf.function(lambda vote: exchange.run(self._reduce, (vote,)), autograph=False)

    def __call__(self, call: int, stop: bool) -> bool:
        with tracing.span(self._kind, {"call": call}):
            return float(self._vote(self._tf.constant(float(stop)))) > 0

    def _reduce(self, vote: Tensor) -> Tensor:
        return self._exchange.reduce(self._tf, [vote], self._ranks)[0]
