"""Parameter servers: each sums its shard of what all ranks push, and the ranks pull the sums.

Servers are processes beside the first ranks (`dlobd.network.exchanges.ps_server`), as many as `exchange_servers` says;
a buffer is cut into as many shards (`dlobd.network.exchanges.shards`). With one server all gradients go through its
host's link, twice the buffers' bytes for each rank; with as many as there are ranks each link carries as much as with a
ring (Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server").
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel, ChannelError, Connection, DeadlinePassed, Traffic
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.all_reduce import DEADLINE_S, JOIN_S, AllReduceExchange, Meeting
from dlobd.network.exchanges.ps_process import ServerProcess
from dlobd.network.exchanges.ps_server import OK, RANK, TEXT_BYTES, Place
from dlobd.network.exchanges.shards import shards
from dlobd.network.formation.address_book import FormationError

NOTICE_S = 5.0
"""How much longer a rank waits for a server than the server waits for the last rank, whom it then names."""

FAREWELL_S = 1.0
"""How long telling a server that this rank leaves may take: few bytes, which a healthy server reads at once."""

LEAVE_S = 10.0
"""How long a rank that ends waits for the others, whose last sums may be in its server."""


class ParameterServer(AllReduceExchange):
    """By parameter servers, each a child of one of the first ranks."""

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
                    meeting.rank, meeting.size, wire.transport, wire.device, settings.library,
                    meeting.secret.decode(), JOIN_S, DEADLINE_S - NOTICE_S, tracing.directory(),
                )  # fmt: skip
                process = ServerProcess(place, meeting.deadline_s)
            addresses = meeting.all_gather("servers", process.address if process else "")[: settings.servers]
            servers = {
                server: _connected(channel, server, addresses[server], meeting)
                # ranks begin with different ones
                for server in sorted(range(len(addresses)), key=lambda server: (server - meeting.rank) % len(addresses))
            }
        except BaseException:
            channel.close()
            if process is not None:
                process.close()
            raise
        return PsPeers(meeting, channel, servers, process)


class PsPeers:
    """See `dlobd.network.exchanges.all_reduce.Peers`.

    Args:
        servers: number to connection.
        process: this rank's own server, if it has one.
    """

    def __init__(
        self, meeting: Meeting, channel: Channel, servers: Mapping[int, Connection], process: ServerProcess | None
    ) -> None:
        self._meeting = meeting
        self._channel = channel
        self._servers = servers
        self._process = process
        self._carried: list[tuple[int, int, int]] = []
        self._failed = False

    def barrier(self, deadline_s: float) -> None:
        """See the contract. A call of no bytes, at the first server."""
        self._call({0: np.empty(0, np.uint8)}, deadline_s)

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract. All shards are pushed before the first sum is pulled."""
        parts = shards(array.size, len(self._servers))
        self._call({server: array[parts[server]] for server in self._servers}, deadline_s)

    def carried(self) -> list[tuple[int, int, int]]:
        """Nothing: servers are no ranks. What went to and from a rank is told by the spans of the servers."""
        return []

    def evidence(self) -> Traffic | None:
        """See the contract. Servers have evidence of their own."""
        return self._channel.evidence()

    def addresses(self) -> tuple[str, ...]:
        """None: only servers listen."""
        return ()

    def fail(self) -> None:
        """See the contract."""
        self._failed = True
        self._channel.close()

    def close(self) -> None:
        """Leaves the servers, and ends this rank's own once all have left."""
        if not self._failed:
            self._leave(b"")
            with suppress(FormationError):  # a rank that ended otherwise is told of where it did
                self._meeting.book.exchange("have left the servers", "", time.monotonic() + LEAVE_S)
        self._channel.close()
        if self._process is not None:
            self._process.close()

    def _call(self, parts: Mapping[int, NDArray[Any]], deadline_s: float) -> None:
        """Each server's part becomes the sum over all ranks."""
        server = 0
        try:
            for server, part in parts.items():
                self._servers[server].send(json.dumps([part.dtype.str, part.size]).encode(), deadline_s)
                self._servers[server].send(part, deadline_s)
            for server in parts:
                _all_pushed(self._servers[server], deadline_s)
            for server, part in parts.items():
                _pull(server, self._servers[server], part, deadline_s)
        except ChannelError as error:
            failed = _failure(server, error)
            self._leave(json.dumps(str(failed)).encode())
            raise failed from error
        except ExchangeFailed as error:
            self._leave(json.dumps(str(error)).encode())
            raise

    def _leave(self, why: bytes) -> None:
        for connection in self._servers.values():
            with suppress(ChannelError):
                connection.send(why, time.monotonic() + FAREWELL_S)


def _connected(channel: Channel, server: int, address: str, meeting: Meeting) -> Connection:
    try:
        connection = channel.connect(address, meeting.deadline_s)
        connection.send(RANK.pack(meeting.rank), meeting.deadline_s)
    except ChannelError as error:
        raise _failure(server, error) from error
    return connection


def _all_pushed(connection: Connection, deadline_s: float) -> None:
    """Raises ExchangeFailed with what the server says."""
    said = bytearray(TEXT_BYTES)
    if size := connection.recv(said, deadline_s):
        raise ExchangeFailed(said[:size].decode())


def _pull(server: int, connection: Connection, part: NDArray[Any], deadline_s: float) -> None:
    flag = bytearray(len(OK))
    size = connection.recv_parts([flag, part], deadline_s)
    if flag != OK:
        _all_pushed(connection, deadline_s)
    if flag != OK or size != len(OK) + part.nbytes:
        raise ExchangeFailed(f"ps-{server} answered {size} bytes, which is not the sum that was asked for")


def _failure(server: int, error: ChannelError) -> ExchangeFailed:
    if isinstance(error, DeadlinePassed):
        return ExchangeFailed(f"ps-{server} did not answer in time ({error})")
    return ExchangeFailed(f"ps-{server} is gone ({error})")
