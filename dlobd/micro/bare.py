"""The reference of a channel over IP: a connected TCP socket, without length, deadline or counters.

The connection is made and authenticated by library sockets. Both ends know the length of each message.
"""

import socket
from collections.abc import Sequence

from dlobd.network.channels import base
from dlobd.network.channels.sockets import SocketsChannel, SocketsConnection, SocketsListener


class BareChannel:
    """Channel without a protocol."""

    capabilities = base.Capabilities()

    def __init__(self, transport: str, device: str, secret: bytes) -> None:
        self._sockets = SocketsChannel(transport, device, secret)
        self._open: list[BareConnection] = []

    def listen(self, device: str = "") -> "BareListener":
        return BareListener(self._sockets.listen(device), self)

    def connect(self, address: str, deadline_s: float) -> "BareConnection":
        return self.taken(self._sockets.connect(address, deadline_s))

    def taken(self, connection: SocketsConnection) -> "BareConnection":
        """Take the socket of a connection."""
        self._open.append(bare := BareConnection(connection))
        return bare

    def evidence(self) -> None:
        """Return None: only the kernel counts the traffic."""

    def close(self) -> None:
        self._sockets.close()
        for connection in self._open:
            connection.close()


class BareListener:
    """Listener at one address."""

    def __init__(self, listener: SocketsListener, channel: BareChannel) -> None:
        self.address, self._listener, self._channel = listener.address, listener, channel

    def accept(self, deadline_s: float) -> "BareConnection":
        return self._channel.taken(self._listener.accept(deadline_s))

    def close(self) -> None:
        self._listener.close()


class BareConnection(base.Connection):
    """Connected socket. Messages have no length: `recv` fills its buffer."""

    library = "bare"

    def __init__(self, connection: SocketsConnection) -> None:
        self.peer = connection.peer
        self._socket: socket.socket = connection.detach()

    def send(self, message: base.Buffer, deadline_s: float) -> None:
        self._socket.sendall(base.view(message))

    def send_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> None:
        views = [base.view(part) for part in parts]
        while views:
            sent = self._socket.sendmsg(views)
            views = _rest(views, sent)

    def recv_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> int:
        views = [base.view(part) for part in parts]
        size = sum(part.nbytes for part in views)
        while views:
            if not (got := self._socket.recvmsg_into(views, 0, socket.MSG_WAITALL)[0]):
                raise base.PeerClosed(f"{self.peer} has closed the connection")
            views = _rest(views, got)
        return size

    def close(self) -> None:
        self._socket.close()


def _rest(views: list[memoryview], count: int) -> list[memoryview]:
    """Return the views without their first `count` bytes."""
    while views and count >= views[0].nbytes:
        count -= views[0].nbytes
        views = views[1:]
    return [views[0][count:], *views[1:]] if views and count else views
