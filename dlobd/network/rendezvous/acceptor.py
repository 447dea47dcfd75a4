"""Acceptor of the driver's servers: one listener, and a thread for each authenticated connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from dlobd.network.channels.base import Closed, Counts
from dlobd.network.channels.sockets import LIBRARY, SocketsConnection, SocketsListener

FOREVER_S = 1e9


class Acceptor:
    """Accepts clients that know the secret and serves each in a thread, from `start` until `close`.

    Args:
        host: the address to listen on, one of this host's.
        secret: the run's secret; other clients are refused, with one line on stderr.
        name: of the threads.

    Raises:
        SetupError: the address cannot be bound.
    """

    def __init__(self, host: str, secret: bytes, name: str) -> None:
        self._name = name
        self._connections: list[SocketsConnection] = []
        self._threads: list[threading.Thread] = []
        self._listener = SocketsListener(host, LIBRARY, secret, _connection)

    @property
    def address(self) -> str:
        """Address for the clients."""
        return self._listener.address

    @property
    def refused(self) -> list[str]:
        """Log lines of the last hundred clients that did not know the secret."""
        return list(self._listener.refused)

    def start(self, serve: Callable[[SocketsConnection], None]) -> None:
        """Start to accept. `serve` gets each connection, which is closed when it returns."""
        self._accepting = threading.Thread(target=self._accept_all, args=(serve,), name=self._name, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End all connections and threads. May be called twice."""
        self._listener.close()
        self._accepting.join()
        for connection in self._connections:
            connection.close()
        for thread in self._threads:
            thread.join()

    def _accept_all(self, serve: Callable[[SocketsConnection], None]) -> None:
        while True:
            try:
                connection = self._listener.accept(time.monotonic() + FOREVER_S)
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
