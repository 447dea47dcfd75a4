"""What all ranks agree on between two steps: one yes or no, by their exchange."""

from __future__ import annotations

from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.description import Job
from dlobd.network.exchanges.base import Exchange


class Agreement:
    """Of one rank; all ranks call it equally often."""

    def __init__(self, tf: Any, job: Job, exchange: Exchange) -> None:
        self._tf = tf
        self._ranks = job.workers
        self._exchange = exchange
        self._kind = kinds.AGREE if exchange.inside_step else kinds.AGREE_OUTSIDE
        self._inside = tf.function(self._run, autograph=False) if exchange.inside_step else None

    def __call__(self, call: int, said: bool) -> bool:
        """Whether any rank said yes. `call` is the number of the agreement, the same on every rank."""
        with tracing.span(self._kind, {"call": call}):
            own = self._tf.constant(float(said))
            return float(self._inside(own) if self._inside else self._reduce(own)) > 0

    def _run(self, own: Any) -> Any:
        return self._exchange.run(self._reduce, (own,))

    def _reduce(self, own: Any) -> Any:
        return self._exchange.reduce(self._tf, [own], self._ranks)[0]
