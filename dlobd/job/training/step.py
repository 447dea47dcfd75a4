"""A training step. Its parts:

    next batch              the loop takes it from `inputs`, outside of this module
    forward and backward    logits, loss and gradients of this rank's batch, and batch statistics if the model has any
    exchange                means over all ranks (`dlobd.network.exchanges`), all in one call. With `max_seconds` the
                            call includes another scalar: this rank's vote for the end
    apply                   the update, equal on all ranks: it moves the statistics, and updates the variables

With an exchange inside the step, the last three parts are compiled together, and their single span is the collective.
With an exchange outside of the step, the step is a span with three inner spans: the parts around the exchange are
compiled, and the span of the exchange, in layer channel, is the collective.

An asynchronous exchange takes only the gradients. Loss and statistics are then values of this rank, and the rank
applies the sum of the gradients of all ranks (`dlobd.network.exchanges.ps.exchange`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.description import Job
from dlobd.job.models.base import following_batches
from dlobd.job.training.optimisation import Loss, Optimiser, Schedule, constant, learning_rate
from dlobd.network.exchanges.base import Exchange, Tensor, TensorFlow
from dlobd.spans import SpanKind

Compute = Callable[..., list[Tensor]]
"""Function of images, labels and an optional vote. With an exchange inside the step, it returns the means of loss and
vote; with an exchange outside, this rank's values for the exchange."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Model, loss, optimiser and schedule of a job."""

    model: Tensor
    loss: Loss
    optimiser: Optimiser
    schedule: Schedule


class Update:
    """Update of a rank's variables and statistics. Made inside the exchange's scope, after the optimiser."""

    def __init__(self, tf: TensorFlow, job: Job, workload: Workload) -> None:
        self._tf = tf
        self._job = job
        self._workload = workload
        self._modules = following_batches(workload.model)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        # a constant learning rate needs no step counter, which would take a large part of a small model's update
        self._counts = workload.schedule is not constant or job.warmup_epochs > 0
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first, name="step")

    @property
    def statistics(self) -> int:
        """Number of tensors of `take_statistics`."""
        return 2 * len(self._modules)

    def take_statistics(self) -> list[Tensor]:
        """Return mean and variance of this rank's batch for each module with moving statistics, in order."""
        return [tensor for module in self._modules for tensor in module.take_batch_statistics()]

    def apply(self, reduced: Sequence[Tensor]) -> None:
        """Apply the means over all ranks: of the statistics, then of the gradients. Call it in a compiled function."""
        statistics, gradients = reduced[: self.statistics], reduced[self.statistics :]
        for module, mean, variance in zip(self._modules, statistics[::2], statistics[1::2], strict=True):
            module.update_moving_statistics(mean, variance)
        rate = learning_rate(self._tf, self._job, self._workload.schedule, self._tf.identity(self._step))
        self._workload.optimiser.apply(self._tf, self._decayed(gradients), rate)
        if self._counts:
            self._step.assign_add(1)

    def _decayed(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Add the gradient of weight decay: weight_decay / 2 x the sum of the squares of all weights. The reported loss
        excludes it.

        Variables of one dimension are excluded: biases, and the parameters of batch normalisation. tf_cnn_benchmarks
        excludes batch normalisation's parameters too, but not biases; Caffe excludes nothing by default.
        """
        decay = self._job.weight_decay
        if not decay:
            return gradients
        variables = self._workload.model.trainable_variables
        return [
            gradient + decay * variable if len(variable.shape) > 1 else gradient
            for variable, gradient in zip(variables, gradients, strict=True)
        ]


class Step:
    """Steps of a rank. Made inside the exchange's scope, after the model."""

    def __init__(self, tf: TensorFlow, job: Job, workload: Workload, exchange: Exchange) -> None:
        self._tf = tf
        self._ranks = job.workers
        self._votes = job.max_seconds > 0
        self._exchange = exchange
        update = Update(tf, job, workload)
        self._statistics = update.statistics
        self._compute = _compute_function(tf, job, workload, update, exchange)
        self._apply = None if exchange.inside_step else _apply_function(tf, update, exchange)

    def __call__(self, k: int, images: Tensor, labels: Tensor, stop: bool = False) -> tuple[float, bool]:
        """Take step number `k`, from 0; return the mean loss, and True if any rank votes for the end.

        With an asynchronous exchange, both values cover only this rank. `stop` is this rank's vote; it has no effect
        without `max_seconds`. Raises FloatingPointError if the loss is not finite; with a synchronous exchange, on all
        ranks.
        """
        vote = (self._tf.constant(float(stop)),) if self._votes else ()
        loss, *votes = self._means(kinds.STEP if k else kinds.FIRST_STEP, k, images, labels, *vote)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss became {loss} at step {k}: lower learning_rate")
        return loss, any(votes)

    def _means(self, kind: SpanKind, k: int, *inputs: Tensor) -> list[float]:
        if self._apply is None:
            with tracing.span(kind, {"rendezvous": kinds.STEP_RENDEZVOUS, "call": k}):
                return [float(mean) for mean in self._compute(*inputs)]
        reported, synchronous = _reported(inputs), self._exchange.synchronous
        local = 0 if synchronous else reported + self._statistics
        rendezvous = {"rendezvous": kinds.EXCHANGE_RENDEZVOUS} if synchronous else {}
        with tracing.span(kind, {"call": k}):
            with tracing.span(kinds.FORWARD_AND_BACKWARD):
                values = self._compute(*inputs)
            with tracing.span(kinds.EXCHANGE, {**rendezvous, "call": k}):
                reduced = [*values[:local], *self._exchange.reduce(self._tf, values[local:], self._ranks)]
            with tracing.span(kinds.APPLY):
                self._apply(reduced[reported:])
            return [float(mean) for mean in reduced[:reported]]


def _reported(inputs: Sequence[Tensor]) -> int:
    """Return the number of exchanged values for the loop: 1 for the loss, 2 if the inputs contain a vote too."""
    return len(inputs) - 1


def _compute_function(tf: TensorFlow, job: Job, workload: Workload, update: Update, exchange: Exchange) -> Compute:
    """Compile forward and backward; with an exchange inside the step, compile the complete step."""
    # AutoGraph would rewrite the functions' source, which takes 0.5 s of CPU time in the first step
    unconverted = tf.autograph.experimental.do_not_convert
    take_statistics, apply = unconverted(update.take_statistics), unconverted(update.apply)

    def forward_and_backward(images: Tensor, labels: Tensor, *vote: Tensor) -> list[Tensor]:
        variables = workload.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = workload.loss(tf, workload.model(images, training=True), labels)
        gradients = tape.gradient(loss, variables)
        if unused := [v.name for v, gradient in zip(variables, gradients, strict=True) if gradient is None]:
            raise ValueError(f"model {job.model}: the loss does not depend on {', '.join(unused)}")
        return [loss, *vote, *take_statistics(), *gradients]

    def whole(*inputs: Tensor) -> list[Tensor]:
        # one collective per step, which includes loss, vote and statistics
        reduced = exchange.reduce(tf, forward_and_backward(*inputs), job.workers)
        apply(reduced[_reported(inputs) :])
        return reduced[: _reported(inputs)]

    part = whole if exchange.inside_step else forward_and_backward

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def compute(*inputs: Tensor) -> Tensor:
        return exchange.run(part, inputs)

    return compute  # type: ignore[no-any-return]


def _apply_function(tf: TensorFlow, update: Update, exchange: Exchange) -> Callable[[Sequence[Tensor]], None]:

    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def apply(reduced: Sequence[Tensor]) -> None:
        exchange.run(lambda *values: update.apply(values), reduced)

    return apply  # type: ignore[no-any-return]
