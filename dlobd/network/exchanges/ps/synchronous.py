"""Parameter servers: each sums its shard of what all ranks push, and the ranks pull the sums.

Servers are processes beside the first ranks (`dlobd.network.exchanges.ps.server`), as many as `exchange_servers` says;
a buffer is cut into as many shards (`dlobd.network.exchanges.shards`). With one server all gradients go through its
host's link, twice the buffers' bytes for each rank; with as many as there are ranks each link carries as much as with a
ring (Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server").
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.all_reduce import DEADLINE_S, JOIN_S, AllReduceExchange, Meeting
from dlobd.network.exchanges.ps.connections import PsPeers, connected, hear
from dlobd.network.exchanges.ps.process import ServerProcess
from dlobd.network.exchanges.ps.server import Place

NOTICE_S = 5.0
"""How much longer a rank waits for a server than the server waits for the last rank, whom it then names."""

LEAVE_S = 10.0
"""How long a rank that ends waits for the others, whose last sums may be in its server."""


class SynchronousPeers(PsPeers):
    """All ranks push, and then all pull."""

    def barrier(self, call: int, deadline_s: float) -> None:
        """See the contract. A call of no bytes, at the first server."""
        super().barrier(call, deadline_s)
        self.call({0: np.empty(0, np.uint8)}, deadline_s, -1)

    def pushed(self, server: int, deadline_s: float) -> None:
        """Waits until all ranks have."""
        hear(self.servers[server], deadline_s)


class ParameterServer(AllReduceExchange):
    """By parameter servers, each a child of one of the first ranks."""

    peers_of: ClassVar[type[PsPeers]] = SynchronousPeers
    leave_s: ClassVar[float] = LEAVE_S

    def meet(self, meeting: Meeting) -> PsPeers:
        """Starts a server, if this is one of the first ranks, and connects to all."""
        settings, wire = meeting.settings, meeting.channel
        if settings.servers > meeting.size:
            raise ExchangeFailed(f"exchange_servers {settings.servers} are more than the {meeting.size} ranks")
        channel: Channel = LIBRARIES.get(settings.library)(wire.transport, wire.device, meeting.secret)
        process: ServerProcess | None = None
        try:
            if meeting.rank < settings.servers:
                place = Place(
                    meeting.rank, meeting.size, wire.transport, wire.device, settings.library, not self.synchronous,
                    meeting.secret.decode(), JOIN_S, DEADLINE_S - NOTICE_S, tracing.directory(),
                )  # fmt: skip
                process = ServerProcess(place, meeting.deadline_s)
            addresses = meeting.all_gather("servers", process.address if process else "")[: settings.servers]
            servers = {
                server: connected(channel, server, addresses[server], meeting)
                # ranks begin with different ones
                for server in sorted(range(len(addresses)), key=lambda server: (server - meeting.rank) % len(addresses))
            }
        except BaseException:
            channel.close()
            if process is not None:
                process.close()
            raise
        return self.peers_of(meeting, channel, servers, process, self.leave_s)
