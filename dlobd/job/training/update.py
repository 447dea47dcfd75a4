"""The update at the end of a step: it moves the statistics, and updates the variables.

It is equal on all ranks, because its inputs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlobd.job.description import Job
from dlobd.job.models.base import following_batches
from dlobd.job.training import schedules
from dlobd.job.training.optimisation import Loss, Optimiser
from dlobd.job.training.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Workload:
    """Model, loss, optimiser and schedule of a job."""

    model: Any
    loss: Loss
    optimiser: Optimiser
    schedule: Schedule


class Update:
    """The update of a rank; made inside the exchange's scope, after the optimiser, with its own step counter."""

    def __init__(self, tf: Any, job: Job, workload: Workload) -> None:
        self._tf = tf
        self._job = job
        self._workload = workload
        self._modules = following_batches(workload.model)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        # a constant learning rate needs no counter, which would be a good part of a small model's update
        self._counts = workload.schedule is not schedules.constant or job.warmup_epochs > 0
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first, name="step")

    @property
    def statistics(self) -> int:
        """Number of tensors of `take_statistics`."""
        return 2 * len(self._modules)

    def take_statistics(self) -> list[Any]:
        """Return mean and variance of this rank's batch for each module with statistics, in order."""
        return [tensor for module in self._modules for tensor in module.take_batch_statistics()]

    def apply(self, reduced: Sequence[Any]) -> None:
        """Apply the means over the ranks, of statistics and then of gradients. To be compiled."""
        statistics, gradients = reduced[: self.statistics], reduced[self.statistics :]
        for module, mean, variance in zip(self._modules, statistics[::2], statistics[1::2], strict=True):
            module.update_moving_statistics(mean, variance)
        learning_rate = schedules.learning_rate(
            self._tf, self._job, self._workload.schedule, self._tf.identity(self._step)
        )
        self._workload.optimiser.apply(self._tf, self._decayed(gradients), learning_rate)
        if self._counts:
            self._step.assign_add(1)

    def _decayed(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Add the gradient of weight_decay / 2 x the sum of the squares of all weights.

        Variables of one dimension are excluded: biases, and the parameters of batch normalisation. The reported loss
            does not include it. tf_cnn_benchmarks excludes batch normalisation's parameters too, but not biases; Caffe
            excludes nothing by default."""
        decay = self._job.weight_decay
        if not decay:
            return gradients
        variables = self._workload.model.trainable_variables
        return [
            gradient + decay * variable if len(variable.shape) > 1 else gradient
            for variable, gradient in zip(variables, gradients, strict=True)
        ]
