"""A worker's connections to all parameter servers: what it pushes, what it pulls, and how it leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import Channel, ChannelError, Connection, DeadlinePassed, Traffic
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.all_reduce import Meeting, Transfer
from dlobd.network.exchanges.ps.process import ServerProcess
from dlobd.network.exchanges.ps.server import RANK
from dlobd.network.exchanges.ps.serving import OK, TEXT_BYTES
from dlobd.network.exchanges.shards import shards
from dlobd.network.formation.address_book import FormationError

FAREWELL_S = 1.0
"""How long telling a server that this rank leaves may take: few bytes, which a healthy server reads at once."""


class PsPeers:
    """Of one rank; see `dlobd.network.exchanges.all_reduce.Peers`.

    Attributes:
        rank: this one.
        servers: number to connection, in the order in which this rank turns to them.

    Args:
        process: this rank's own server, if it has one.
        leave_s: how long a rank that ends waits for the others, who may still need its server.
    """

    def __init__(
        self,
        meeting: Meeting,
        channel: Channel,
        servers: Mapping[int, Connection],
        process: ServerProcess | None,
        leave_s: float,
    ) -> None:
        self.rank = meeting.rank
        self._book = meeting.book
        self._channel = channel
        self.servers = servers
        self._process = process
        self._leave_s = leave_s
        self._number = self._buffer = 0  # of the exchange under way, and of its next buffer
        self._carried: list[Transfer] = []
        self._failed = False

    def barrier(self, call: int, deadline_s: float) -> None:
        """See the contract."""
        self._number, self._buffer = call, 0

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract. All shards are pushed before the first answer is pulled."""
        cut = shards(array.size, len(self.servers))
        self.call({server: array[cut[server]] for server in self.servers}, deadline_s, self._buffer)
        self._buffer += 1

    def carried(self) -> list[Transfer]:
        """See the contract."""
        found, self._carried = self._carried, []
        return found

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
            with tracing.span(kinds.LEAVE_SERVERS), suppress(FormationError):
                # a rank that ended otherwise is told of where it did
                self._book.exchange("have left the servers", "", time.monotonic() + self._leave_s)
        self._channel.close()
        if self._process is not None:
            self._process.close()

    def call(self, parts: Mapping[int, NDArray[Any]], deadline_s: float, buffer: int) -> None:
        """Pushes each server's part, which then becomes what the server answers.

        Args:
            buffer: the number of the fusion buffer; below 0 for none.

        Raises:
            ExchangeFailed: a server is gone or late, or says that something failed.
        """
        server = 0
        try:
            for server, part in parts.items():
                self.push(server, part, [part.dtype.str, part.size, buffer, self._number], deadline_s)
            for server in parts:
                self.pushed(server, deadline_s)
            for server, part in parts.items():
                self.pull(server, part, deadline_s)
        except ChannelError as error:
            failed = _failure(server, error)
            self._leave(json.dumps(str(failed)).encode())
            raise failed from error
        except ExchangeFailed as error:
            self._leave(json.dumps(str(error)).encode())
            raise

    def push(self, server: int, part: NDArray[Any], form: list[Any], deadline_s: float) -> None:
        """Raises ChannelError."""
        self.servers[server].send(json.dumps(form).encode(), deadline_s)
        self.servers[server].send(part, deadline_s)
        self._carried.append((self.rank, f"ps-{server}", part.nbytes))

    def pushed(self, server: int, deadline_s: float) -> None:
        """Nothing: an asynchronous server does not say so."""

    def pull(self, server: int, part: NDArray[Any], deadline_s: float) -> None:
        """Raises ChannelError, and ExchangeFailed with what the server says."""
        connection = self.servers[server]
        flag = bytearray(len(OK))
        size = connection.recv_parts([flag, part], deadline_s)
        if flag != OK:
            hear(connection, deadline_s)
        if flag != OK or size != len(OK) + part.nbytes:
            raise ExchangeFailed(f"ps-{server} answered {size} bytes, which is not what was asked for")
        self._carried.append((f"ps-{server}", self.rank, part.nbytes))

    def _leave(self, why: bytes) -> None:
        for connection in self.servers.values():
            with suppress(ChannelError):
                connection.send(why, time.monotonic() + FAREWELL_S)


def connected(channel: Channel, server: int, address: str, meeting: Meeting) -> Connection:
    """To one server, which has been told whose it is.

    Raises:
        ExchangeFailed: it is gone, or late.
    """
    try:
        connection = channel.connect(address, meeting.deadline_s)
        connection.send(RANK.pack(meeting.rank), meeting.deadline_s)
    except ChannelError as error:
        raise _failure(server, error) from error
    return connection


def hear(connection: Connection, deadline_s: float) -> None:
    """Raises ExchangeFailed with what the server says, unless that is nothing."""
    said = bytearray(TEXT_BYTES)
    if size := connection.recv(said, deadline_s):
        raise ExchangeFailed(said[:size].decode())


def _failure(server: int, error: ChannelError) -> ExchangeFailed:
    if isinstance(error, DeadlinePassed):
        return ExchangeFailed(f"ps-{server} did not answer in time ({error})")
    return ExchangeFailed(f"ps-{server} is gone ({error})")
