"""UCX (libucp): TCP, IP over InfiniBand, RDMA verbs, or shared memory behind one interface.

Two ends first connect by library sockets: the TCP connection authenticates both, exchanges their UCX addresses, and
stays open, because its close signals the end of the peer, for every transport. **UCX itself does not authenticate**: a
client that reaches its ports, or its shared memory, can send to it.
"""

import os
import threading
from dataclasses import replace
from typing import ClassVar

from dlobd.channel import TRANSPORTS
from dlobd.network import interfaces
from dlobd.network.channels.base import Capabilities, Closed, Traffic, total_traffic
from dlobd.network.channels.ip import check_transport
from dlobd.network.channels.sockets import LIBRARY as SOCKETS
from dlobd.network.channels.sockets import SocketsChannel, SocketsConnection, SocketsListener
from dlobd.network.channels.ucx.connection import UcxConnection
from dlobd.network.channels.ucx.worker import Context, Worker, port
from dlobd.network.devices import devices

LIBRARY = "ucx"
ADDRESS_BYTES = 64 << 10  # maximum size of a UCX address: on a host with many devices it has a few hundred bytes


class UcxChannel:
    """Channel of library `ucx`.

    The device is an interface or its IPv4 address; DEVICE:PORT for rdma; empty for shm. The secret may be empty.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(one_sided=True, begins=True)

    def __init__(self, transport: str = "shm", device: str = "", secret: bytes = b"") -> None:
        check_transport(LIBRARY, transport)
        self._transport = transport
        self._device = device
        self._secret = secret
        self._opened: tuple[Context, SocketsChannel] | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._connections: list[UcxConnection] = []

    def listen(self, device: str = "") -> "UcxListener":
        """Listen on a device. Raises UsageError or SetupError if UCX cannot use it."""
        context, link = self._open(device)
        return UcxListener(link.listen(self._tcp_device()), context, self)

    def connect(self, address: str, deadline_s: float) -> UcxConnection:
        """Connect to a listener. Raises also the errors of `listen`."""
        context, link = self._open()
        scheme, _, place = address.partition(":")
        if scheme != LIBRARY:
            raise ValueError(f"{address!r} is no address of library {LIBRARY}; expected {LIBRARY}:A.B.C.D:PORT")
        return self.upgrade(context, link.connect(f"{SOCKETS}:{place}", deadline_s), deadline_s)

    def upgrade(self, context: Context, link: SocketsConnection, deadline_s: float) -> UcxConnection:
        """Make a UCX connection over an authenticated TCP connection."""
        try:
            context.enter()
        except Closed:
            link.close()
            raise
        try:
            connection = _connected(context, link, deadline_s)
        except BaseException:
            context.leave()
            link.close()
            raise
        with self._lock:
            closed = self._closed
            self._connections += [] if closed else [connection]
        if closed:  # closed concurrently
            connection.close()
            raise Closed("the channel is closed")
        return connection

    def evidence(self) -> Traffic:
        """Return the traffic totals of all connections. `kind` is the configured transport's kind; the kernel's
        counters must confirm it."""
        with self._lock:
            total = total_traffic([connection.update_lanes() for connection in self._connections])
        return replace(total, kind=TRANSPORTS[self._transport].kind, device=self._device)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        if self._opened is None:
            return
        context, link = self._opened
        link.close()
        for connection in connections:
            connection.close()
        context.close()  # the context is destroyed after the last connection that is still being made

    def _open(self, device: str = "") -> tuple[Context, SocketsChannel]:
        """Return the context and the TCP channel; create both on the device of the first call."""
        with self._lock:
            if self._closed:
                raise Closed("the channel is closed")
            if self._opened is None:
                self._device = device or self._device
                context = Context(self._transport, self._device)
                transport = "ipoib" if self._transport == "ipoib" else "tcp"
                self._opened = context, SocketsChannel(transport, self._tcp_device(), self._secret)
            return self._opened

    def _tcp_device(self) -> str:
        """Return the interface of the TCP connection: for RDMA an interface of the device, or else the first
        interface with an address."""
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


def _connected(context: Context, link: SocketsConnection, deadline_s: float) -> UcxConnection:
    worker = Worker(context, link.peer)
    own = os.urandom(16)  # random ID of this end
    try:
        link.send(own + worker.address(), deadline_s)
        theirs = bytearray(ADDRESS_BYTES)
        size = link.recv(theirs, deadline_s)
        worker.connect(bytes(theirs[len(own) : size]))
    except BaseException:
        worker.close()
        raise
    detached = link.detach()
    worker.watch(detached)
    return UcxConnection(worker, detached, own, bytes(theirs[: len(own)]))


class UcxListener:
    """Listener of library `ucx`."""

    def __init__(self, link: SocketsListener, context: Context, channel: UcxChannel) -> None:
        self.address = f"{LIBRARY}:{link.address.partition(':')[2]}"
        self._link = link
        self._context = context
        self._channel = channel

    def accept(self, deadline_s: float) -> UcxConnection:
        return self._channel.upgrade(self._context, self._link.accept(deadline_s), deadline_s)

    def close(self) -> None:
        self._link.close()
