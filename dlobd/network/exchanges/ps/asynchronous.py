"""Asynchronous parameter servers: a rank pushes its gradients, and pulls what all ranks have pushed since it did last.

    push    its shard of each buffer to each server; waits for that server's lane
    pull    the sum of all pushes that it has not had yet, its own among them

There is no rendezvous: no rank waits for another one, and each gradient is applied whole, by every rank, so that there
are as many updates as ranks take steps. See `dlobd.network.exchanges.ps.accumulating` for what that is equal to.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.exchanges.all_reduce import Peers
from dlobd.network.exchanges.ps.connections import PsPeers
from dlobd.network.exchanges.ps.serving import BETWEEN_CALLS_S
from dlobd.network.exchanges.ps.synchronous import ParameterServer


class AsynchronousPeers(PsPeers):
    """No rank waits for another: `barrier` only says which exchange begins."""

    def push(self, server: int, part: NDArray[Any], form: list[Any], deadline_s: float) -> None:
        """See the base."""
        with tracing.span(kinds.PUSH, self._wait(server)):
            super().push(server, part, form, deadline_s)

    def pull(self, server: int, part: NDArray[Any], deadline_s: float) -> None:
        """See the base."""
        with tracing.span(kinds.PULL, self._wait(server)):
            super().pull(server, part, deadline_s)

    def _wait(self, server: int) -> dict[str, Any]:
        return {"waits_for": [kinds.server_lane(server, self.rank)]}


class AsynchronousParameterServer(ParameterServer):
    """By the same servers, which add instead of summing."""

    synchronous: ClassVar[bool] = False
    peers_of: ClassVar[type[PsPeers]] = AsynchronousPeers
    leave_s: ClassVar[float] = BETWEEN_CALLS_S  # the slowest rank may have many steps left

    def wait_for_peers(self, peers: Peers, call: int, deadline_s: float) -> None:
        """Nothing to record."""
        peers.barrier(call, deadline_s)
