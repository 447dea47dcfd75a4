"""Exchanges by parameter servers: each server sums its shard of the pushed gradients, and the ranks pull the sums.

Servers are processes beside the first ranks (`dlobd.network.exchanges.ps.process`), as many as `exchange_servers`; a
buffer is cut into as many shards. With one server all gradients go through its host's link, twice the buffers' bytes
for each rank; with as many servers as ranks each link carries as much as with a ring (Li et al. 2014, "Scaling
Distributed Machine Learning with the Parameter Server").

The asynchronous exchange has no rendezvous: a rank pushes its shard of each buffer to each server, and pulls the sum
of all pushes since its last call, including its own. Every rank applies each whole gradient, so the number of updates
equals the sum of the ranks' steps. `dlobd.network.exchanges.ps.servers` explains the equivalence to plain SGD.
"""

import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import ClassVar

import numpy as np

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import Array, ChannelError, Connection, DeadlinePassed, OpenChannel
from dlobd.network.collectives.mesh import RANK, ExchangeFailed
from dlobd.network.exchanges.fusion import shards
from dlobd.network.exchanges.outside_step import DEADLINE_S, JOIN_S, JoinContext, OutsideStepExchange, Peers, Transfer
from dlobd.network.exchanges.ps.process import ServerConfig, ServerProcess
from dlobd.network.exchanges.ps.servers import BETWEEN_CALLS_S, OK, TEXT_BYTES
from dlobd.network.rendezvous.store import RendezvousError

NOTICE_S = 5.0
"""Extra time that a rank waits for a server, so that the server first reports the late rank."""

LEAVE_S = 10.0  # timeout of a finished rank that waits for the other ranks: their last sums may be in its server
FAREWELL_S = 1.0  # timeout of this rank's last message to a server: few bytes, which a healthy server reads at once


class PsPeers(Peers):
    """A rank's connections to all parameter servers, and its server process, if any."""

    def __init__(
        self,
        context: JoinContext,
        channel: OpenChannel,
        servers: Mapping[int, Connection],
        process: ServerProcess | None,
        synchronous: bool,
    ) -> None:
        self.rank = context.rank
        self.servers = servers  # connection by number of the server, in the order of use
        self._store = context.store
        self.channel: OpenChannel = channel
        self._process = process
        self._synchronous = synchronous
        self._number = self._buffer = 0  # numbers of the current exchange and of its next buffer
        self._carried: list[Transfer] = []
        self._failed = False

    def barrier(self, call: int, deadline_s: float) -> None:
        """Start the exchange. If it is synchronous, wait for the first server's answer, after all ranks have pushed."""
        self._number, self._buffer = call, 0
        if self._synchronous:
            self._call({0: np.empty(0, np.uint8)}, deadline_s, -1)

    def all_reduce(self, array: Array, deadline_s: float) -> None:
        """Sum the array in place: push all shards, then pull all answers."""
        cut = shards(array.size, len(self.servers))
        self._call({server: array[cut[server]] for server in self.servers}, deadline_s, self._buffer)
        self._buffer += 1

    def carried(self) -> list[Transfer]:
        transfers, self._carried = self._carried, []
        return transfers

    def fail(self) -> None:
        self._failed = True
        self.channel.close()

    def close(self) -> None:
        """Leave the servers, and end this rank's server once all ranks have left."""
        if not self._failed:
            self._leave(b"")
            # asynchronous: the slowest rank may have many steps left
            leave_s = LEAVE_S if self._synchronous else BETWEEN_CALLS_S
            with tracing.span(kinds.LEAVE_SERVERS), suppress(RendezvousError):
                # a rank that failed reports its own error
                self._store.all_gather("servers left", "", time.monotonic() + leave_s)
        self.channel.close()
        if self._process is not None:
            self._process.close()

    def _call(self, parts: Mapping[int, Array], deadline_s: float, buffer: int) -> None:
        """Push a part of a fusion buffer (negative: no buffer) to each server, and replace it by the server's answer.

        Raises ExchangeFailed: a server is gone or late, or reports a failure.
        """
        server = 0
        try:
            for server, part in parts.items():
                with self._span(kinds.PUSH, server):
                    form = [part.dtype.str, part.size, buffer, self._number]
                    self.servers[server].send(json.dumps(form).encode(), deadline_s)
                    self.servers[server].send(part, deadline_s)
                self._carried.append((self.rank, f"ps-{server}", part.nbytes))
            for server in parts if self._synchronous else ():
                _raise_reason(self.servers[server], deadline_s)  # empty, once all ranks have pushed
            for server, part in parts.items():
                with self._span(kinds.PULL, server):
                    _pull(server, self.servers[server], part, deadline_s)
                self._carried.append((f"ps-{server}", self.rank, part.nbytes))
        except ChannelError as error:
            failed = _failure(server, error)
            self._leave(json.dumps(str(failed)).encode())
            raise failed from error
        except ExchangeFailed as error:
            self._leave(json.dumps(str(error)).encode())
            raise

    def _span(self, kind: kinds.SpanKind, server: int) -> AbstractContextManager[object]:
        """Record a span that waits for the server's lane; nothing in a synchronous exchange with its single span."""
        if self._synchronous:
            return nullcontext()
        return tracing.span(kind, {"waits_for": [kinds.server_lane(server, self.rank)]})

    def _leave(self, why: bytes) -> None:
        for connection in self.servers.values():
            with suppress(ChannelError):
                connection.send(why, time.monotonic() + FAREWELL_S)


class ParameterServer(OutsideStepExchange):
    """Synchronous parameter servers, each a child process of one of the first ranks."""

    def connect(self, context: JoinContext) -> PsPeers:
        if context.servers > context.size:
            raise ExchangeFailed(f"exchange_servers {context.servers} exceeds the number of ranks, {context.size}")
        channel = context.open_channel()
        process: ServerProcess | None = None
        try:
            if context.rank < context.servers:
                config = ServerConfig(
                    index=context.rank,
                    workers=context.size,
                    transport=context.channel.transport,
                    device=context.channel.device,
                    library=context.library,
                    asynchronous=not self.synchronous,
                    secret=context.secret.decode(),
                    join_s=JOIN_S,
                    within_s=DEADLINE_S - NOTICE_S,
                    spans_dir=tracing.directory(),
                )
                process = ServerProcess(config, context.deadline_s)
            addresses = context.all_gather("servers", process.address if process else "")[: context.servers]
            servers = {
                server: _connect(channel, server, addresses[server], context)
                # ranks start with different servers
                for server in sorted(range(len(addresses)), key=lambda server: (server - context.rank) % len(addresses))
            }
        except BaseException:
            channel.close()
            if process is not None:
                process.close()
            raise
        return PsPeers(context, channel, servers, process, self.synchronous)


class AsynchronousParameterServer(ParameterServer):
    """Asynchronous parameter servers: ranks do not wait for each other."""

    synchronous: ClassVar[bool] = False

    def wait_for_peers(self, peers: Peers, call: int, deadline_s: float) -> None:
        """Start the exchange without a span, because there is no wait."""
        peers.barrier(call, deadline_s)


def _connect(channel: OpenChannel, server: int, address: str, context: JoinContext) -> Connection:
    try:
        connection = channel.connect(address, context.deadline_s)
        connection.send(RANK.pack(context.rank), context.deadline_s)
    except ChannelError as error:
        raise _failure(server, error) from error
    return connection


def _pull(server: int, connection: Connection, part: Array, deadline_s: float) -> None:
    """Receive the answer for a part. Raises ChannelError; ExchangeFailed with the server's reason."""
    flag = bytearray(len(OK))
    size = connection.recv_parts([flag, part], deadline_s)
    if flag != OK:
        _raise_reason(connection, deadline_s)
    if flag != OK or size != len(OK) + part.nbytes:
        raise ExchangeFailed(f"ps-{server} answered {size} bytes, expected {len(OK) + part.nbytes}")


def _raise_reason(connection: Connection, deadline_s: float) -> None:
    """Receive a text from the server, and raise ExchangeFailed with it unless it is empty."""
    text = bytearray(TEXT_BYTES)
    if size := connection.recv(text, deadline_s):
        raise ExchangeFailed(text[:size].decode())


def _failure(server: int, error: ChannelError) -> ExchangeFailed:
    if isinstance(error, DeadlinePassed):
        return ExchangeFailed(f"ps-{server} did not answer in time ({error})")
    return ExchangeFailed(f"ps-{server} is gone ({error})")
