"""Where ranks come in: one listener of the driver, and a thread for each connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from dlobd.network.channels.base import Closed
from dlobd.network.channels.socket_connection import SocketsConnection
from dlobd.network.channels.socket_listener import SocketsListener
from dlobd.network.channels.sockets import SCHEME
from dlobd.network.channels.two_sided import Counts

FOR_EVER_S = 1e9


class Reception:
    """Accepts who proves that it knows the secret, and serves each in a thread, from `start` until `close`.

    Args:
        host: the address to listen on, one of this host's.
        secret: of the run; who does not know it is refused, with one line on stderr.
        name: of the threads.

    Raises:
        SetupError: nothing can listen there.
    """

    def __init__(self, host: str, secret: bytes, name: str) -> None:
        self._name = name
        self._connections: list[SocketsConnection] = []
        self._threads: list[threading.Thread] = []
        self._listener = SocketsListener(host, SCHEME, secret, _connection)

    @property
    def address(self) -> str:
        """Where ranks find it."""
        return self._listener.address

    @property
    def refused(self) -> list[str]:
        """Who did not know the secret: one line each, the last hundred."""
        return list(self._listener.refused)

    def start(self, serve: Callable[[SocketsConnection], None]) -> None:
        """Begins to accept; `serve` gets each connection, which is closed once it returns."""
        self._accepting = threading.Thread(target=self._welcome_all, args=(serve,), name=self._name, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Ends all connections and threads. May be called twice."""
        self._listener.close()
        self._accepting.join()
        for connection in self._connections:
            connection.close()
        for thread in self._threads:
            thread.join()

    def _welcome_all(self, serve: Callable[[SocketsConnection], None]) -> None:
        while True:
            try:
                connection = self._listener.accept(time.monotonic() + FOR_EVER_S)
            except Closed:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=_serve_one, args=(serve, connection), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()


def _serve_one(serve: Callable[[SocketsConnection], None], connection: SocketsConnection) -> None:
    try:
        serve(connection)
    finally:
        connection.close()


def _connection(connected: socket.socket, peer: str) -> SocketsConnection:
    return SocketsConnection(connected, peer, Counts("tcp", ""))
