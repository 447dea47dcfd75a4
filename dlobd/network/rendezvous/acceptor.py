"""Base class of the driver's servers for ranks: one listener, and a thread for each authenticated connection."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

from dlobd.network.channels.base import Closed, Traffic
from dlobd.network.channels.sockets import SocketsConnection, SocketsListener

FOREVER_S = 1e9


class RendezvousError(Exception):
    """Failure of the rendezvous. The message is one line that names missing or dead ranks."""


class RankServer(ABC):
    """Server that accepts clients with the secret, and serves each client in a thread, until `close`.

    Other clients are refused, with one line on stderr. Raises SetupError: the address cannot be bound.
    """

    thread_name = "dlobd-ranks"

    def __init__(self, host: str, ranks: int, secret: bytes) -> None:
        self._ranks = ranks
        self._present: set[int] = set()
        self._dead: list[int] = []  # ranks whose connection ended without a farewell, in the order of their ends
        self._changed = threading.Condition()
        self._closed = False
        self._connections: list[SocketsConnection] = []
        self._threads: list[threading.Thread] = []
        self._listener = SocketsListener(
            host, secret, lambda connected, peer: SocketsConnection(connected, peer, Traffic("tcp", ""))
        )
        self.address = self._listener.address
        self.refused = self._listener.refused
        self._accepting = threading.Thread(target=self._accept_all, name=self.thread_name, daemon=True)
        self._accepting.start()

    @abstractmethod
    def _serve(self, connection: SocketsConnection) -> None:
        """Serve a client; its connection is closed afterwards."""

    def _add_dead(self, rank: int) -> None:
        with self._changed:
            if rank >= 0 and not self._closed:
                self._dead.append(rank)
                self._changed.notify_all()

    def close(self) -> None:
        """Wake waiting threads, and end all connections and threads. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._listener.close()
        self._accepting.join()
        for connection in self._connections:
            connection.close()
        for thread in self._threads:
            thread.join()

    def _accept_all(self) -> None:
        while True:
            try:
                connection = self._listener.accept(time.monotonic() + FOREVER_S)
            except Closed:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve_one, args=(connection,), name=self.thread_name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve_one(self, connection: SocketsConnection) -> None:
        try:
            self._serve(connection)
        finally:
            connection.close()


def names(ranks: Iterable[int]) -> str:
    """Format ranks as text: `rank 1 and rank 2`."""
    return " and ".join(f"rank {rank}" for rank in ranks)
