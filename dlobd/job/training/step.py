"""One training step, by its parts.

    next batch              by the loop, from `inputs`: it is not in here
    forward and backward    logits, loss and gradients of this rank's batch, and its statistics if the model wants them
    exchange                their means over all ranks (`dlobd.network.exchanges`): all of them in one call. With
                            `max_seconds` one more scalar travels along: whether this rank has had enough
    apply                   the update, the same on every rank (`dlobd.job.training.update`)

Where the exchange is inside of the step, the last three are compiled together, and one span has them; it is the
collective. Where it is outside, the step is a span that holds three: the parts around the exchange are compiled, and
the span of the exchange, of layer channel, is the collective.

An exchange that is not synchronous takes the gradients alone. Loss and statistics then are this rank's own, and what it
applies are gradients of all ranks, each whole (`dlobd.network.exchanges.ps.exchange`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.description import Job
from dlobd.job.training.update import Update, Workload
from dlobd.network.exchanges.base import Exchange
from dlobd.spans import SpanKind

Compute = Callable[..., list[Any]]
"""From images, labels and perhaps a wish to the means of loss and wish, or, with the exchange outside, to what this
rank gives to it."""


class Step:
    """The steps of one rank; made inside of the exchange's scope, once its model is."""

    def __init__(self, tf: Any, job: Job, workload: Workload, exchange: Exchange) -> None:
        self._tf = tf
        self._ranks = job.workers
        self._asks = job.max_seconds > 0
        self._exchange = exchange
        update = Update(tf, job, workload)
        self._statistics = update.statistics
        self._compute = _compute_function(tf, job, workload, update, exchange)
        self._apply = None if exchange.inside_step else _apply_function(tf, update, exchange)

    def __call__(self, k: int, images: Any, labels: Any, enough: bool = False) -> tuple[float, bool]:
        """Step number `k`, from 0; the mean loss of all ranks, and whether one of them has had enough. With an exchange
        that is not synchronous both are of this rank.

        Args:
            enough: whether this rank has had; it has no effect without `max_seconds`.

        Raises:
            FloatingPointError: the loss is not finite. Where ranks wait for each other it is the same on all of them.
        """
        wish = (self._tf.constant(float(enough)),) if self._asks else ()
        loss, *wishes = self._means(kinds.STEP if k else kinds.FIRST_STEP, k, images, labels, *wish)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss became {loss} at step {k}: lower learning_rate")
        return loss, any(wishes)

    def _means(self, kind: SpanKind, k: int, *given: Any) -> list[float]:
        """The means of loss and, if it was given, wish."""
        if self._apply is not None:
            return self._in_parts(kind, k, *given)
        with tracing.span(kind, {"rendezvous": kinds.STEP_RENDEZVOUS, "call": k}):
            return [float(mean) for mean in self._compute(*given)]

    def _in_parts(self, kind: SpanKind, k: int, *given: Any) -> list[float]:
        assert self._apply is not None
        told, synchronous = _told(given), self._exchange.synchronous
        kept = 0 if synchronous else told + self._statistics
        rendezvous = {"rendezvous": kinds.EXCHANGE_RENDEZVOUS} if synchronous else {}
        with tracing.span(kind, {"call": k}):
            with tracing.span(kinds.FORWARD_AND_BACKWARD):
                own = self._compute(*given)
            with tracing.span(kinds.EXCHANGE, {**rendezvous, "call": k}):
                reduced = [*own[:kept], *self._exchange.reduce(self._tf, own[kept:], self._ranks)]
            with tracing.span(kinds.APPLY):
                self._apply(reduced[told:])
            return [float(mean) for mean in reduced[:told]]


def _told(given: Sequence[Any]) -> int:
    """How many of what is exchanged the loop is told: the loss, and a wish if there is one beside the batch."""
    return len(given) - 1


def _compute_function(tf: Any, job: Job, workload: Workload, update: Update, exchange: Exchange) -> Compute:
    """The compiled part of a step that computes; with the exchange inside, all of the step."""
    # AutoGraph would read and rewrite their source, which costs the first step half a second of CPU time
    as_it_is = tf.autograph.experimental.do_not_convert
    take_statistics, apply = as_it_is(update.take_statistics), as_it_is(update.apply)

    def forward_and_backward(images: Any, labels: Any, *wish: Any) -> list[Any]:
        variables = workload.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = workload.loss(tf, workload.model(images, training=True), labels)
        gradients = tape.gradient(loss, variables)
        if unused := [v.name for v, gradient in zip(variables, gradients, strict=True) if gradient is None]:
            raise ValueError(f"model {job.model}: the loss does not depend on {', '.join(unused)}")
        return [loss, *wish, *take_statistics(), *gradients]

    def whole(*given: Any) -> list[Any]:
        # one collective a step: loss, wish and statistics travel with the gradients
        reduced = exchange.reduce(tf, forward_and_backward(*given), job.workers)
        apply(reduced[_told(given) :])
        return reduced[: _told(given)]

    part = whole if exchange.inside_step else forward_and_backward

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def compute(*given: Any) -> Any:
        return exchange.run(part, given)

    return compute  # type: ignore[no-any-return]


def _apply_function(tf: Any, update: Update, exchange: Exchange) -> Callable[[Sequence[Any]], None]:
    """The compiled update, from what was exchanged."""

    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def apply(reduced: Sequence[Any]) -> None:
        exchange.run(lambda *values: update.apply(values), reduced)

    return apply  # type: ignore[no-any-return]
