"""One training step, by its parts.

    next batch              by the loop, from `inputs`: it is not in here
    forward and backward    logits, loss and gradients of this rank's batch, and its statistics if the model wants them
    exchange                their means over all ranks (`dlobd.network.exchanges`): all of them in one call
    apply                   the update, the same on every rank (`dlobd.job.training.update`)

Where the exchange is inside of the step, the last three are compiled together, and one span has them; it is the
collective. Where it is outside, the step is a span that holds three: the parts around the exchange are compiled, and
the span of the exchange, of layer channel, is the collective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlobd import tracing
from dlobd.job.description import Job
from dlobd.job.training.update import Update, Workload
from dlobd.network.exchanges.base import Exchange
from dlobd.tracing import names

Compute = Callable[[Any, Any], Any]
"""From images and labels to the mean loss, or, with the exchange outside, to what this rank gives to it."""


class Step:
    """The steps of one rank; made inside of the exchange's scope, once its model is."""

    def __init__(self, tf: Any, job: Job, workload: Workload, exchange: Exchange) -> None:
        self._tf = tf
        self._ranks = job.workers
        self._exchange = exchange
        update = Update(tf, job, workload)
        self._compute = _compute_function(tf, job, workload, update, exchange)
        self._apply = None if exchange.inside_step else _apply_function(tf, update, exchange)

    def __call__(self, k: int, images: Any, labels: Any) -> float:
        """Step number `k`, from 0; the mean loss of all ranks.

        Raises:
            FloatingPointError: it is not finite. It is the same on every rank, so that none waits for another then.
        """
        loss = self._loss(names.STEP if k else names.FIRST_STEP, k, images, labels)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss became {loss} at step {k}: lower learning_rate")
        return loss

    def _loss(self, name: str, k: int, images: Any, labels: Any) -> float:
        if self._apply is not None:
            return self._in_parts(name, k, images, labels)
        with tracing.span("tensorflow", name, {"rendezvous": names.STEP_RENDEZVOUS, "call": k}):
            return float(self._compute(images, labels))

    def _in_parts(self, name: str, k: int, images: Any, labels: Any) -> float:
        assert self._apply is not None
        with tracing.span("tensorflow", name, {"call": k}):
            with tracing.span("tensorflow", names.FORWARD_AND_BACKWARD):
                own = self._compute(images, labels)
            with tracing.span("channel", names.EXCHANGE, {"rendezvous": names.EXCHANGE_RENDEZVOUS, "call": k}):
                loss, *reduced = self._exchange.reduce(self._tf, own, self._ranks)
            with tracing.span("tensorflow", names.APPLY):
                self._apply(reduced)
            return float(loss)


def _compute_function(tf: Any, job: Job, workload: Workload, update: Update, exchange: Exchange) -> Compute:
    """The compiled part of a step that computes; with the exchange inside, all of the step."""
    # AutoGraph would read and rewrite their source, which costs the first step half a second of CPU time
    as_it_is = tf.autograph.experimental.do_not_convert
    take_statistics, apply = as_it_is(update.take_statistics), as_it_is(update.apply)

    def forward_and_backward(images: Any, labels: Any) -> list[Any]:
        variables = workload.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = workload.loss(tf, workload.model(images, training=True), labels)
        gradients = tape.gradient(loss, variables)
        if unused := [v.name for v, gradient in zip(variables, gradients, strict=True) if gradient is None]:
            raise ValueError(f"model {job.model}: the loss does not depend on {', '.join(unused)}")
        return [loss, *take_statistics(), *gradients]

    def whole(images: Any, labels: Any) -> Any:
        # one collective a step: loss and statistics travel with the gradients
        loss, *reduced = exchange.reduce(tf, forward_and_backward(images, labels), job.workers)
        apply(reduced)
        return loss

    part = whole if exchange.inside_step else forward_and_backward

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def compute(images: Any, labels: Any) -> Any:
        return exchange.run(part, (images, labels))

    return compute  # type: ignore[no-any-return]


def _apply_function(tf: Any, update: Update, exchange: Exchange) -> Callable[[Sequence[Any]], None]:
    """The compiled update, from what was exchanged."""

    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def apply(reduced: Sequence[Any]) -> None:
        exchange.run(lambda *values: update.apply(values), reduced)

    return apply  # type: ignore[no-any-return]
