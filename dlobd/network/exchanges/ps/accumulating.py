"""An asynchronous server: adds each push to what every worker has not yet had, and answers with what this one has not.

    worker                                  server i
      the shard                     --->    receive
                                            sum        added to what is pending of each worker
             <--- OK and what is pending of this one, its own push among it; or FAILED
             <--- after FAILED: why         send

Nobody waits for anybody, but for the server's memory. The parameters stay with the workers: one that takes -lr times
what it is answered has what a server would have that held the parameters and took -lr times each push at once, as long
as the update is linear in the gradients, and the same at any time. So this is the plain stochastic gradient descent of
asynchronous parameter servers (Dean et al. 2012, "Large Scale Distributed Deep Networks", Downpour SGD with
n_push = n_fetch = 1); no other optimiser is offered.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import Connection
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.ps.serving import Form, Key, Server, refuse


class AccumulatingServer(Server):
    """See `dlobd.network.exchanges.ps.serving`."""

    def __init__(self, index: int, connections: Mapping[int, Connection], within_s: float) -> None:
        super().__init__(index, connections, within_s)
        self._adding = threading.Lock()
        self._pending: dict[Key, list[NDArray[Any]]] = {}  # to what each rank has not had
        self._answers: dict[tuple[int, Key], NDArray[Any]] = {}
        self._failure = ""

    def call(self, rank: int, connection: Connection, form: Form, own: NDArray[Any]) -> None:
        """See the contract."""
        if self._failure:
            refuse(connection, self._failure)
            raise ExchangeFailed(self._failure)
        key = form.key
        with tracing.span(kinds.SUM):
            taken = self._answers.get((rank, key))  # it was sent, so that its memory is free
            if taken is None:
                taken = np.empty_like(own)
            taken.fill(0)
            with self._adding:
                if key not in self._pending:
                    self._pending[key] = [np.zeros_like(own) for _ in self._connections]
                pending = self._pending[key]
                for total in pending:
                    np.add(total, own, out=total)
                pending[rank], self._answers[rank, key] = taken, pending[rank]
        self.answer(rank, connection, form, self._answers[rank, key])

    def left(self, rank: int) -> None:
        """See the contract. The others go on."""

    def fail(self, reason: str) -> None:
        """See the contract."""
        self._failure = self._failure or reason
