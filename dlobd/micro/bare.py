"""The reference of a channel over IP: Python's sockets without length, deadline or proof of a secret.

Both ends know the length of each message. The listener binds one address and accepts only peers that send the
launch's secret first.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Sequence

from dlobd.network.channels import base
from dlobd.network.channels.ip import local_address, source_towards

BLOCKED_S = 60.0  # timeout of a socket without traffic


class BareChannel:
    """Channel without a protocol."""

    capabilities = base.Capabilities()

    def __init__(self, transport: str, device: str, secret: bytes) -> None:
        self._transport, self._device, self._secret = transport, device, secret
        self._open: list[BareConnection | BareListener] = []

    def listen(self, device: str = "") -> BareListener:
        listener = BareListener(local_address(self._transport, device or self._device), self._secret)
        self._open.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> BareConnection:
        host, _, port = address.rpartition(":")
        source = (source_towards(self._transport, self._device, host), 0)
        connected = socket.create_connection((host, int(port)), max(0.1, deadline_s - time.monotonic()), source)
        connected.sendall(self._secret)
        connection = BareConnection(connected)
        self._open.append(connection)
        return connection

    def evidence(self) -> None:
        """Return None: only the kernel counts the traffic."""

    def close(self) -> None:
        for opened in self._open:
            opened.close()


class BareListener:
    """Listener at one address."""

    def __init__(self, host: str, secret: bytes) -> None:
        self._socket = socket.create_server((host, 0))
        self._secret = secret
        self._accepted: list[BareConnection] = []
        self.address = f"{host}:{self._socket.getsockname()[1]}"

    def accept(self, deadline_s: float) -> BareConnection:
        """Return the next connection with the secret. Raises DeadlinePassed."""
        while True:
            self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                connected, _ = self._socket.accept()
                connected.settimeout(BLOCKED_S)
                proof = connected.recv(len(self._secret), socket.MSG_WAITALL)
            except TimeoutError as error:
                raise base.DeadlinePassed(f"no peer connected to {self.address} in time") from error
            if hmac.compare_digest(proof, self._secret):
                self._accepted.append(connection := BareConnection(connected))
                return connection
            connected.close()

    def close(self) -> None:
        self._socket.close()
        for connection in self._accepted:
            connection.close()


class BareConnection(base.Connection):
    """Connected socket. Messages have no length: `recv` fills its buffer."""

    library = "bare"

    def __init__(self, connected: socket.socket) -> None:
        self.peer = "{}:{}".format(*connected.getpeername())
        self._socket = connected
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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
