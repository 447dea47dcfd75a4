"""The loop of one rank: a batch, a step; and what is done between them.

    after a step            (chief) a checkpoint, if one is due
    after an epoch          its mean loss; (chief) an evaluation, if one is due: the others wait in their next step

All ranks take the same steps. The last one is the first of these:

    `epochs`, `max_steps`   their last one
    `max_seconds`           the first step into which any rank goes when so much time has passed since its first batch:
                            it says so in the step's exchange
    `target_accuracy`       the last step of the first epoch after which an evaluation reaches it: the chief says so in
                            an exchange of its own, after each evaluation
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.description import Job
from dlobd.job.launchers.base import Node
from dlobd.job.training import storing
from dlobd.job.training.agreement import Agreement
from dlobd.job.training.evaluation import Evaluation
from dlobd.job.training.inputs import Batch
from dlobd.job.training.step import Step
from dlobd.tracing.clock import monotonic_ns


class Loop:
    """Of one rank; made once its model and its step are."""

    def __init__(
        self, tf: Any, job: Job, node: Node, step: Step, agreement: Agreement, model: Any, storage: Storage
    ) -> None:
        self._tf = tf
        self._job = job
        self._node = node
        self._step = step
        self._agreement = agreement
        self._model = model
        self._storage = storage
        self._chief = node.rank == 0
        self._evaluation = Evaluation(tf, job, model, storage)
        self._losses: list[float] = []
        self._evaluations: list[dict[str, int]] = []
        self._samples = 0
        self._began_ns = 0

    def run(self, incoming: Iterator[Batch]) -> dict[str, Any]:
        """Takes all steps; what the rank reports of them.

        Raises:
            RuntimeError: the input ended before.
            FloatingPointError: the loss became no number.
        """
        ended_by, ended_ns = "", 0
        while not ended_by:
            ended_by = self._take(incoming)
            ended_ns = monotonic_ns()
            if ended_by:
                tracing.instant(kinds.LAST_STEP_DONE)
            if self._after_step(last=bool(ended_by)):
                ended_by = "target_accuracy"
                tracing.instant(kinds.LAST_STEP_DONE, ended_ns)
        return {
            "rank": self._node.rank,
            "role": self._node.role,
            "index": self._node.index,
            "steps": len(self._losses),
            "samples": self._samples,
            "losses": self._losses,
            "evaluations": self._evaluations,
            "ended_by": ended_by,
            # from the first batch to the last step, also where nothing is recorded
            "loop_ns": ended_ns - self._began_ns,
        }

    def _take(self, incoming: Iterator[Batch]) -> str:
        """One step. The key of the experiment by which it was the last one; empty if another one follows, as far as is
        known before an evaluation."""
        job, k = self._job, len(self._losses)
        batch = next(incoming, None)
        if batch is None:
            raise RuntimeError(f"the input ended after {k} of {job.most_steps} steps")
        if k == 0:
            tracing.instant(kinds.FIRST_BATCH)
            self._began_ns = monotonic_ns()
        late = job.max_seconds > 0 and monotonic_ns() - self._began_ns >= job.max_seconds * 1_000_000_000
        loss, enough = self._step(k, *batch, enough=late)
        if k == 0:
            tracing.instant(kinds.FIRST_STEP_DONE)
        self._losses.append(loss)
        self._samples += len(batch[1])
        if k + 1 == job.most_steps:
            return "epochs" if k + 1 == job.steps else "max_steps"
        return "max_seconds" if enough else ""

    def _after_step(self, last: bool) -> bool:
        """Whether the ranks agree that the accuracy is reached; not asked after the last step."""
        job, taken = self._job, len(self._losses)
        if self._chief and job.checkpoint_every_steps and taken % job.checkpoint_every_steps == 0:
            storing.checkpoint(self._tf, job, self._model, self._storage, taken)
        epoch, rest = divmod(taken, job.steps_per_epoch)
        if rest:
            return False
        tracing.instant(kinds.EPOCH_DONE, epoch=epoch, loss=fmean(self._losses[-job.steps_per_epoch :]))
        if not job.evaluate_every_epochs or epoch % job.evaluate_every_epochs:
            return False
        reached = self._chief and self._evaluate(epoch) >= job.target_accuracy
        return job.target_accuracy > 0 and not last and self._agreement(epoch, reached)

    def _evaluate(self, epoch: int) -> float:
        """The accuracy of the model as it is."""
        samples, right = self._evaluation()
        tracing.instant(kinds.EPOCH_EVALUATED, epoch=epoch, samples=samples, right=right)
        self._evaluations.append({"epoch": epoch, "samples": samples, "right": right})
        return right / samples if samples else 0.0
