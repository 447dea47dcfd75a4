"""The loop of one rank: a batch, a step; and what is done between them.

after a step            (chief) a checkpoint, if one is due
after an epoch          its mean loss; (chief) an evaluation, if one is due: the others wait for it in their next step
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from dlobd import tracing
from dlobd.hadoop.file_system import Storage
from dlobd.job.description import Job
from dlobd.job.launchers.base import Node
from dlobd.job.training import storing
from dlobd.job.training.evaluation import Evaluation
from dlobd.job.training.inputs import Batch
from dlobd.job.training.step import Step
from dlobd.tracing import names
from dlobd.tracing.clock import monotonic_ns


class Loop:
    """Of one rank; made once its model and its step are."""

    def __init__(self, tf: Any, job: Job, node: Node, step: Step, model: Any, storage: Storage) -> None:
        self._tf = tf
        self._job = job
        self._node = node
        self._step = step
        self._model = model
        self._storage = storage
        self._chief = node.rank == 0
        self._evaluation = Evaluation(tf, job, model, storage)
        self._losses: list[float] = []
        self._evaluations: list[dict[str, int]] = []

    def run(self, incoming: Iterator[Batch]) -> dict[str, Any]:
        """Takes all steps; what the rank reports of them.

        Raises:
            RuntimeError: the input ended before.
            FloatingPointError: the loss became no number.
        """
        job, samples, began_ns, ended_ns = self._job, 0, None, None
        for k in range(job.steps):
            batch = next(incoming, None)
            if batch is None:
                raise RuntimeError(f"the input ended after {k} of {job.steps} steps")
            if k == 0:
                tracing.instant(names.FIRST_BATCH)
                began_ns = monotonic_ns()
            self._losses.append(self._step(k, *batch))
            ended_ns = monotonic_ns()
            if k == 0:
                tracing.instant(names.FIRST_STEP_DONE)
            if k + 1 == job.steps:
                tracing.instant(names.LAST_STEP_DONE)
            samples += len(batch[1])
            self._after_step(k + 1)
        return {
            "rank": self._node.rank,
            "role": self._node.role,
            "index": self._node.index,
            "steps": len(self._losses),
            "samples": samples,
            "losses": self._losses,
            "evaluations": self._evaluations,
            # from the first batch to the last step, also where nothing is recorded
            "loop_ns": ended_ns - began_ns if began_ns is not None and ended_ns is not None else None,
        }

    def _after_step(self, taken: int) -> None:
        job = self._job
        if self._chief and job.checkpoint_every_steps and taken % job.checkpoint_every_steps == 0:
            storing.checkpoint(self._tf, job, self._model, self._storage, taken)
        epoch, rest = divmod(taken, job.steps_per_epoch)
        if not rest:
            self._after_epoch(epoch)

    def _after_epoch(self, epoch: int) -> None:
        job = self._job
        tracing.instant(names.EPOCH_DONE, epoch=epoch, loss=fmean(self._losses[-job.steps_per_epoch :]))
        if self._chief and job.evaluate_every_epochs and epoch % job.evaluate_every_epochs == 0:
            samples, right = self._evaluation()
            tracing.instant(names.EPOCH_EVALUATED, epoch=epoch, samples=samples, right=right)
            self._evaluations.append({"epoch": epoch, "samples": samples, "right": right})
