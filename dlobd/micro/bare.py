"""The reference of a channel over IP: a connected TCP socket, without length, deadline or counters.

The connection is made and authenticated by library sockets. Both ends know the length of each message.
"""

import socket
from collections.abc import Sequence
from typing import ClassVar

from dlobd.network.channels import base
from dlobd.network.channels.sockets import SocketsChannel, SocketsConnection, advance, set_timeouts


class BareConnection(SocketsConnection):
    """Connected socket. Messages have no length: `recv` fills its buffer."""

    library = "bare"

    def __init__(self, connected: socket.socket, peer: str, traffic: base.Traffic) -> None:
        super().__init__(connected, peer, traffic)
        set_timeouts(connected, 0)

    def send(self, message: base.Buffer, deadline_s: float) -> None:
        self._socket.sendall(base.view(message))

    def send_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> None:
        views = [base.view(part) for part in parts]
        while views:
            advance(views, self._socket.sendmsg(views))

    def recv_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> int:
        views = [base.view(part) for part in parts]
        size = sum(part.nbytes for part in views)
        while views:
            if not (got := self._socket.recvmsg_into(views, 0, socket.MSG_WAITALL)[0]):
                raise base.PeerClosed(f"{self.peer} has closed the connection")
            advance(views, got)
        return size


class BareChannel(SocketsChannel):
    """Channel without a protocol, whose traffic only the kernel counts."""

    capabilities: ClassVar[base.Capabilities] = base.Capabilities()

    def _connected(self, connected: socket.socket, peer: str) -> BareConnection:
        traffic = base.Traffic("unknown", "")
        connection = BareConnection(connected, peer, traffic)
        self._keep(connection, traffic)
        return connection
