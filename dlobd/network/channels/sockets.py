"""TCP sockets of the standard library: the baseline of all other libraries, with the care that these take.

`tcp` goes over any interface with an IPv4 address, `ipoib` over one of InfiniBand; bytes travel alike. A connection
binds its source to the interface that it was told, and is refused before it begins where the kernel's routes lead over
another one; what stays on this host goes over loopback, and `evidence` says so. Without an interface it is loopback.

Both ends prove that they know the run's secret when a connection is made (`dlobd.network.channels.authentication`); its
bytes are neither encrypted nor signed.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import ClassVar

from dlobd.errors import UsageError
from dlobd.network import interfaces
from dlobd.network.channels import authentication
from dlobd.network.channels.base import Capabilities, Closed, DeadlinePassed, Traffic
from dlobd.network.channels.ip import counts_of, local_address, parsed, source_towards
from dlobd.network.channels.socket_connection import SocketsConnection
from dlobd.network.channels.socket_listener import SocketsListener
from dlobd.network.channels.two_sided import Counts, traffic

RETRY_S = 0.02
"""Between two tries to connect to an address where nobody listens yet."""

LOOK_S = 0.1
"""The longest that `connect` waits before it looks whether its channel was closed."""

SCHEME = "sockets"


class _NotYetError(Exception):
    """Nobody listens there, or no more; one may ask again."""


class SocketsChannel:
    """See `dlobd.network.channels.base.Channel`.

    Args:
        transport: tcp or ipoib.
        device: the interface that carries it; empty for loopback, and for whatever the routes say when it connects.
        secret: of the run; empty where none is needed.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        iovec=True, one_sided=False, processes=True, hosts=True, begins=True, moves=True
    )
    transports: ClassVar[tuple[str, ...]] = ("tcp", "ipoib")

    def __init__(self, transport: str = "tcp", device: str = "", secret: bytes = b"") -> None:
        if transport not in self.transports:
            raise UsageError(
                f"Library sockets cannot carry {transport!r}.", f"it carries {' and '.join(self.transports)}"
            )
        self._transport = transport
        self._device = device
        self._secret = secret
        self._listeners: list[SocketsListener] = []
        self._connections: list[SocketsConnection] = []
        self._counts: list[Counts] = []
        self._closed = threading.Event()

    def listen(self, device: str = "") -> SocketsListener:
        """See the contract. Raises UsageError or SetupError where the interface cannot be used."""
        self._check_open()
        host = local_address(self._transport, device or self._device)
        listener = SocketsListener(host, SCHEME, self._secret, self._welcome)
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> SocketsConnection:
        """See the contract. Raises also `authentication.Refused`, and SetupError where the way does not lead over the
        interface of this channel."""
        host, port = parsed(SCHEME, address)
        source = source_towards(self._transport, self._device, host)
        while True:
            self._check_open()
            try:
                return self._dial(source, host, port, deadline_s)
            except _NotYetError as error:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise DeadlinePassed(f"nobody listens at {address} in time: {error}") from error
                self._closed.wait(min(RETRY_S, left_s))

    def evidence(self) -> Traffic:
        """See the contract."""
        return traffic(self._counts)

    def close(self) -> None:
        """See the contract."""
        self._closed.set()
        for listener in self._listeners:  # before their connections: they make them
            listener.close()
        for connection in self._connections:
            connection.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed("this channel of sockets is closed")

    def _welcome(self, connected: socket.socket, peer: str) -> SocketsConnection:
        """A connection of a socket, which is counted and closed with this channel."""
        counts = counts_of(interfaces.carrying(connected.getsockname()[0], connected.getpeername()[0]))
        connection = SocketsConnection(connected, peer, counts)
        self._counts.append(counts)
        self._connections.append(connection)
        if self._closed.is_set():
            connection.close()  # whoever closed this channel may not have seen it
        return connection

    def _dial(self, source: str, host: str, port: int, deadline_s: float) -> SocketsConnection:
        """One try."""
        peer = f"{host}:{port}"
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if source:
                connected.bind((source, 0))
            try:
                connected.connect((host, port))
            except BlockingIOError:
                self._ready(connected, select.POLLOUT, deadline_s, peer)
                if error := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, os.strerror(error)) from None
            if connected.getsockname() == connected.getpeername():
                raise _NotYetError("connection refused")  # by chance the kernel has joined it to itself
            greeted = self._exactly(connected, authentication.GREETING_BYTES, deadline_s, peer, greeting=True)
            said = authentication.hello(self._secret, greeted)
            connected.send(said)  # so few bytes always fit into the buffer of a new connection
            answer = self._exactly(connected, authentication.PROOF_BYTES, deadline_s, peer)
            authentication.check(self._secret, greeted, said, answer, peer)
            return self._welcome(connected, peer)
        except OSError as error:
            connected.close()
            raise _NotYetError(error.strerror or str(error)) from error
        except BaseException:
            connected.close()
            raise

    def _exactly(
        self, connected: socket.socket, size: int, deadline_s: float, peer: str, greeting: bool = False
    ) -> bytes:
        """What the listening end says. Who does not begin with a greeting need not be heard to the end."""
        said = b""
        while len(said) < size:
            self._ready(connected, select.POLLIN, deadline_s, peer)
            more = connected.recv(size - len(said))
            if not more:
                raise _NotYetError("it closed the connection")
            said += more
            if greeting and not authentication.begins_well(said):
                raise authentication.Refused(f"{peer} is no listener of library sockets")
        return said

    def _ready(self, connected: socket.socket, event: int, deadline_s: float, peer: str) -> None:
        """Waits for the event, for the deadline, or for `close`."""
        waiting = select.poll()
        waiting.register(connected, event)
        while True:
            self._check_open()
            left_s = max(0.0, deadline_s - time.monotonic())
            if waiting.poll(min(left_s, LOOK_S) * 1000):
                return
            if not left_s:
                raise DeadlinePassed(f"{peer} did not answer in time")
