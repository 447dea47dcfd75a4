"""A synchronous server: sums its shard of what all workers push, and hands the sum back to each.

worker                                  server i
  the shard                     --->    receive
         <--- nothing, or why it fails             once all have pushed
                                        sum        in the order of the ranks: the same bits whoever comes first
         <--- OK and the sum; or FAILED
         <--- after FAILED: why         send
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import Connection
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.ps.gathering import Gathering
from dlobd.network.exchanges.ps.serving import Form, Key, Server, refuse, tell


class SummingServer(Server):
    """See `dlobd.network.exchanges.ps.serving`. Workers wait for each other."""

    def __init__(self, index: int, connections: Mapping[int, Connection], within_s: float) -> None:
        super().__init__(index, connections, within_s)
        self._gathering = Gathering(len(connections), within_s)
        self._forms: dict[int, Form] = {}  # of the call under way
        self._totals: dict[Key, NDArray[Any]] = {}

    def call(self, rank: int, connection: Connection, form: Form, own: NDArray[Any]) -> None:
        """See the contract."""
        self._forms[rank] = form
        try:
            self._gathering.meet(rank, self._check)
        except ExchangeFailed as error:
            tell(connection, str(error))
            raise
        connection.send(b"", time.monotonic() + self._within_s)
        try:
            self._gathering.meet(rank, self._sum)
        except ExchangeFailed as error:
            refuse(connection, str(error))
            raise
        self.answer(rank, connection, form, self._totals[form.key])

    def left(self, rank: int) -> None:
        """See the contract. Whoever still waits for this one waits in vain."""
        self._gathering.fail(f"rank {rank} has left")

    def fail(self, reason: str) -> None:
        """See the contract."""
        self._gathering.fail(reason)

    def _check(self) -> None:
        """By the last one that has pushed."""
        for rank, form in self._forms.items():
            if form != self._forms[0]:
                raise ExchangeFailed(f"rank {rank} pushed other shapes than rank 0: it runs something else")

    def _sum(self) -> None:
        """By the last one that was told that all have pushed; the others wait, and nobody sends any more."""
        key = self._forms[0].key
        first, *others = (self._pushed[rank, key] for rank in range(len(self._connections)))
        if key not in self._totals:
            self._totals[key] = np.empty_like(first)
        total = self._totals[key]
        with tracing.span(kinds.SUM):
            np.copyto(total, first)
            for other in others:
                np.add(total, other, out=total)
