"""UCX (libucp): tcp, IP over InfiniBand, RDMA verbs, or shared memory, by one interface.

Ends meet over a TCP connection of library sockets, which proves the run's secret, tells each the other's UCX address,
and stays: that it ends is how one learns that the other is gone, whatever the transport. **UCX itself does not
authenticate**: who can reach its ports, or its shared memory, can send to it.
"""

from __future__ import annotations

import threading
from typing import ClassVar

from dlobd.errors import UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import Capabilities, Closed, Kind, Traffic
from dlobd.network.channels.socket_connection import SocketsConnection
from dlobd.network.channels.socket_listener import SocketsListener
from dlobd.network.channels.sockets import SCHEME as SOCKETS
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.channels.ucx.connection import UcxConnection, name
from dlobd.network.channels.ucx.context import TRANSPORTS, Context, port
from dlobd.network.channels.ucx.worker import Worker
from dlobd.network.devices import devices

SCHEME = "ucx"
ADDRESS_BYTES = 64 << 10
"""The longest UCX address that is taken: one of a host with many devices has some hundred bytes."""

KINDS: dict[str, Kind] = {"tcp": "tcp", "ipoib": "ipoib", "rdma": "verbs", "shm": "shm"}


class UcxChannel:
    """See `dlobd.network.channels.base.Channel`.

    Args:
        transport: tcp, ipoib, rdma or shm.
        device: an interface or its IPv4 address; DEVICE:PORT of rdma; of shm none.
        secret: of the run; empty where none is needed.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        iovec=True, one_sided=True, processes=True, hosts=True, begins=True, moves=True
    )
    transports: ClassVar[tuple[str, ...]] = TRANSPORTS

    def __init__(self, transport: str = "shm", device: str = "", secret: bytes = b"") -> None:
        if transport not in TRANSPORTS:
            raise UsageError(f"Library ucx cannot carry {transport!r}.", f"it carries {', '.join(TRANSPORTS)}")
        self._transport = transport
        self._device = device
        self._secret = secret
        self._begun: tuple[Context, SocketsChannel] | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._connections: list[UcxConnection] = []

    def listen(self, device: str = "") -> UcxListener:
        """See the contract. Raises UsageError or SetupError where UCX cannot use the device."""
        context, beside = self._begin(device)
        return UcxListener(beside.listen(self._link_device()), context, self)

    def connect(self, address: str, deadline_s: float) -> UcxConnection:
        """See the contract. Raises also as `listen`."""
        context, beside = self._begin()
        scheme, _, place = address.partition(":")
        if scheme != SCHEME:
            raise ValueError(f"{address!r} is no address of library ucx, which are ucx:A.B.C.D:PORT")
        return self.welcome(context, beside.connect(f"{SOCKETS}:{place}", deadline_s), deadline_s)

    def welcome(self, context: Context, beside: SocketsConnection, deadline_s: float) -> UcxConnection:
        """The UCX connection of two ends that have met."""
        try:
            context.enter()
        except Closed:
            beside.close()
            raise
        try:
            connection = _connected(context, beside, deadline_s)
        except BaseException:
            context.leave()
            beside.close()
            raise
        with self._lock:
            closed = self._closed
            self._connections += [] if closed else [connection]
        if closed:  # meanwhile
            connection.close()
            raise Closed("the channel is closed")
        return connection

    def evidence(self) -> Traffic:
        """See the contract. `kind` is the transport's: whether it was used, the counters must prove."""
        with self._lock:
            every = [connection.traffic() for connection in self._connections]
        return Traffic(
            kind=KINDS[self._transport],
            device=self._device,
            sent_messages=sum(one.sent_messages for one in every),
            sent_bytes=sum(one.sent_bytes for one in every),
            received_messages=sum(one.received_messages for one in every),
            received_bytes=sum(one.received_bytes for one in every),
            put_bytes=sum(one.put_bytes for one in every),
            got_bytes=sum(one.got_bytes for one in every),
            lanes=tuple(sorted({lane for one in every for lane in one.lanes})),
        )

    def close(self) -> None:
        """See the contract."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        if self._begun is None:
            return
        context, beside = self._begun
        beside.close()
        for connection in connections:
            connection.close()
        context.close()  # ends with the last connection that is still being made

    def _begin(self, device: str = "") -> tuple[Context, SocketsChannel]:
        """Its context, and the channel on which ends meet. UCX begins when it is first asked for, on that device."""
        with self._lock:
            if self._closed:
                raise Closed("the channel is closed")
            if self._begun is None:
                self._device = device or self._device
                context = Context(self._transport, self._device)
                transport = "ipoib" if self._transport == "ipoib" else "tcp"
                self._begun = context, SocketsChannel(transport, self._link_device(), self._secret)
            return self._begun

    def _link_device(self) -> str:
        """Where the ends meet: on the same interface; of an RDMA device, on the one above or below it, else on the
        first that has an address."""
        if self._transport == "shm":
            return ""
        if self._transport != "rdma":
            return self._device
        wanted = port(self._device)
        above = {
            row.interface
            for one in devices()
            for each in one.ports
            if f"{one.name}:{each.number}" == wanted
            for row in each.gids
            if row.interface
        }
        usable = [one for one in interfaces.interfaces() if one.up and one.addresses]
        near = [one.name for one in usable if one.name in above]
        others = [one.name for one in usable if one.type != interfaces.LOOPBACK]
        return (near or others or [""])[0]


def _connected(context: Context, beside: SocketsConnection, deadline_s: float) -> UcxConnection:
    worker = Worker(context, beside.peer)
    own = name()
    try:
        beside.send(own + worker.address(), deadline_s)
        told = bytearray(ADDRESS_BYTES)
        size = beside.recv(told, deadline_s)
        worker.connect(bytes(told[len(own) : size]))
    except BaseException:
        worker.close()
        raise
    link = beside.detach()
    worker.watch(link)
    return UcxConnection(worker, link, own, bytes(told[: len(own)]))


class UcxListener:
    """See `dlobd.network.channels.base.Listener`."""

    def __init__(self, beside: SocketsListener, context: Context, channel: UcxChannel) -> None:
        self.address = f"{SCHEME}:{beside.address.partition(':')[2]}"
        self._beside = beside
        self._context = context
        self._channel = channel

    def accept(self, deadline_s: float) -> UcxConnection:
        """See the contract."""
        return self._channel.welcome(self._context, self._beside.accept(deadline_s), deadline_s)

    def close(self) -> None:
        """See the contract."""
        self._beside.close()
