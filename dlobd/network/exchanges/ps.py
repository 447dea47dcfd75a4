"""Parameter servers, synchronous: each sums its shard of what all workers push, and the workers pull the sums.

    pack             tensors are copied into fusion buffers (`dlobd.network.exchanges.fusion`)
    wire             push: each server gets its slice of each buffer (`dlobd.network.exchanges.shards`)
    wait for peers   until the servers say that all workers have pushed
    wire             pull: the sums, into the same buffers
    unpack           the means are divided out of the buffers, and become tensors

Servers are processes beside the first ranks (`dlobd.network.exchanges.ps_server`), as many as `exchange_servers` says.
With one server all gradients go through its host's link, twice the buffers' bytes for each worker; with as many as
there are ranks each link carries as much as with a ring (Li et al. 2014, "Scaling Distributed Machine Learning with the
Parameter Server"). Ranks meet as `dlobd.network.exchanges.meeting` says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dlobd import tracing
from dlobd.network.channels.base import ChannelError, Connection, DeadlinePassed
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.fusion import Fusion
from dlobd.network.exchanges.meeting import DEADLINE_S, JOIN_S, Meeting
from dlobd.network.exchanges.ps_process import ServerProcess
from dlobd.network.exchanges.ps_server import OK, RANK, TEXT_BYTES, Place
from dlobd.network.exchanges.shards import shards
from dlobd.schema import NotMeasured
from dlobd.tracing import names

NOTICE_S = 5.0
"""How much longer a worker waits for a server than the server waits for the last worker, whom it then names."""

FAREWELL_S = 1.0
"""How long telling a server that this worker leaves may take: few bytes, which a healthy server reads at once."""


class ParameterServer:
    """See `dlobd.network.exchanges.base.Exchange`."""

    inside_step: ClassVar[bool] = False
    not_measured: ClassVar[NotMeasured | None] = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._meeting: Meeting | None = None
        self._process: ServerProcess | None = None
        self._servers: dict[int, Connection] = {}
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._calls = 0

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Nothing: TensorFlow knows of no other rank."""
        return {}

    def join(self, tf: Any, peers: Sequence[str], rank: int) -> None:
        """Starts a server, if this is one of the first ranks, and connects to all. One rank alone needs none.

        Raises:
            ExchangeFailed, FormationError: some did not come, or there are more servers than ranks.
        """
        servers = self._settings.servers
        if len(peers) < 2:
            return
        if servers > len(peers):
            raise ExchangeFailed(f"exchange_servers {servers} are more than {len(peers)} ranks, which start one each")
        self._meeting = meeting = Meeting(self._settings, peers, rank)
        if rank < servers:
            place = Place(
                rank, len(peers), meeting.transport, meeting.device, self._settings.library, meeting.secret,
                JOIN_S, DEADLINE_S - NOTICE_S,
            )  # fmt: skip
            self._process = ServerProcess(place, meeting.deadline_s)
        addresses = meeting.all_gather("servers", self._process.address if self._process else "")
        for step in range(servers):
            server = (rank + step) % servers  # workers begin with different ones
            try:
                self._servers[server] = meeting.channel.connect(addresses[server], meeting.deadline_s)
                self._servers[server].send(RANK.pack(rank), meeting.deadline_s)
            except ChannelError as error:
                raise _failure(server, error) from error

    def scope(self) -> AbstractContextManager[Any]:
        """None: variables are this rank's own."""
        return nullcontext()

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """As it is."""
        return function(*arguments)

    def reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        """See the contract.

        Raises:
            ExchangeFailed: a rank or a server is gone, which is named, or did not answer in time.
        """
        try:
            return self._reduce(tf, tensors, ranks)
        except ExchangeFailed as error:
            self._leave(json.dumps(str(error)).encode())
            if self._meeting is None:
                raise
            raise self._meeting.failed(error) from None

    def _reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        deadline_s = time.monotonic() + DEADLINE_S
        call, self._calls = self._calls, self._calls + 1
        with tracing.span("channel", names.PACK) as span:
            arrays = [np.asarray(memoryview(tensor)) for tensor in tensors]  # no copy: a tensor shows its memory
            plan = self._plan(arrays)
            plan.fusion.pack(arrays)
            span.note(bytes=plan.fusion.bytes)
        if self._servers:
            with tracing.span("channel", names.WIRE, bytes=plan.fusion.bytes):
                self._each(lambda server, connection: _push(plan, server, connection, deadline_s))
            with tracing.span("channel", names.WAIT_FOR_PEERS, {"rendezvous": names.PEERS_RENDEZVOUS, "call": call}):
                self._each(lambda server, connection: _all_pushed(connection, deadline_s))
            with tracing.span("channel", names.WIRE, bytes=plan.fusion.bytes):
                self._each(lambda server, connection: _pull(plan, server, connection, deadline_s))
        with tracing.span("channel", names.UNPACK):
            # the quotient is new memory, which TensorFlow may keep
            return [tf.constant(total / total.dtype.type(ranks)) for total in plan.fusion.unpack()]

    def _each(self, work: Callable[[int, Connection], None]) -> None:
        for server, connection in self._servers.items():
            try:
                work(server, connection)
            except ChannelError as error:
                raise _failure(server, error) from error

    def _plan(self, arrays: Sequence[NDArray[Any]]) -> _Plan:
        form = tuple((array.shape, array.dtype) for array in arrays)
        if form not in self._plans:
            self._plans[form] = _Plan(Fusion(arrays, self._settings.fusion_bytes), self._settings.servers)
        return self._plans[form]

    def _leave(self, why: bytes) -> None:
        for connection in self._servers.values():
            with suppress(ChannelError):
                connection.send(why, time.monotonic() + FAREWELL_S)

    def close(self) -> None:
        """Says what carried the bytes, leaves the servers and the other ranks, and ends its own server."""
        if self._meeting is not None:
            if self._servers:
                self._meeting.record_transport()
            self._leave(b"")
            self._meeting.leave()
        if self._process is not None:
            self._process.close()


class _Plan:
    """Of one form of a call: its buffers, and what of them is whose.

    Attributes:
        slices: server by server, views of the buffers' memory.
        announced: server by server, the message before a push.
    """

    def __init__(self, fusion: Fusion, servers: int) -> None:
        self.fusion = fusion
        self.slices = [
            [bucket[part] for bucket, part in zip(fusion.buckets, parts, strict=True)]
            for parts in shards([bucket.size for bucket in fusion.buckets], servers)
        ]
        self.announced = [json.dumps([(part.dtype.str, part.size) for part in own]).encode() for own in self.slices]


def _push(plan: _Plan, server: int, connection: Connection, deadline_s: float) -> None:
    connection.send(plan.announced[server], deadline_s)
    connection.send_parts(plan.slices[server], deadline_s)


def _all_pushed(connection: Connection, deadline_s: float) -> None:
    """Raises ExchangeFailed with what the server says."""
    said = bytearray(TEXT_BYTES)
    if size := connection.recv(said, deadline_s):
        raise ExchangeFailed(said[:size].decode())


def _pull(plan: _Plan, server: int, connection: Connection, deadline_s: float) -> None:
    flag = bytearray(len(OK))
    size = connection.recv_parts([flag, *plan.slices[server]], deadline_s)
    if flag != OK:
        _all_pushed(connection, deadline_s)
    if flag != OK or size != len(OK) + sum(part.nbytes for part in plan.slices[server]):
        raise ExchangeFailed(f"ps-{server} answered {size} bytes, which is not the sum that was asked for")


def _failure(server: int, error: ChannelError) -> ExchangeFailed:
    if isinstance(error, DeadlinePassed):
        return ExchangeFailed(f"ps-{server} did not answer in time ({error})")
    return ExchangeFailed(f"ps-{server} is gone ({error})")
