"""Servers in the driver for ranks, and the key-value store, through which ranks exchange short texts such as addresses.

    rank r                                       store
      {"rank": r}                        --->               the connection was authenticated before: see
      {"name": N, "value": V, "within_s": S} -> stores V    `dlobd.network.channels.authentication`
             <--- {"values": [...]}                         once all ranks gave a value for N; or
             <--- {"missing": [ranks]}                      once S seconds have passed; or
             <--- {"dead": rank}                            as soon as a rank's connection ended without a bye
      {"bye": true}                      --->

Messages are JSON of at most MESSAGE_BYTES over library sockets; nothing is unpickled. A rank keeps its connection until
it ends, so the store records the first dead rank; a rank alone only sees that a neighbour is gone.
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from dlobd.network.channels import authentication
from dlobd.network.channels.base import ChannelError, Closed, MessageTooLong, Traffic
from dlobd.network.channels.sockets import SocketsChannel, SocketsConnection, SocketsListener

Message = dict[str, Any]  # JSON object
MESSAGE_BYTES = 1 << 20  # maximum size of a message: sixteen ranks' worker addresses of a few kilobytes each
FOREVER_S = 1e9
ANSWER_S = 5.0  # time that the store has to answer, beyond the requested timeout

SETTLE_S = 1.0
"""Time to wait for the store's report of a dead rank. The kernel closes a dead process's connections in any order, so a
neighbour may detect the death first."""


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


class KeyValueStore(RankServer):
    """Server of the key-value store."""

    thread_name = "dlobd-store"

    def __init__(self, host: str, ranks: int, secret: bytes) -> None:
        self._values: dict[str, dict[int, str]] = {}
        super().__init__(host, ranks, secret)

    def _serve(self, connection: SocketsConnection) -> None:
        rank = -1
        try:
            rank = self._register(_receive(connection, time.monotonic() + ANSWER_S))
            while "bye" not in (message := _receive(connection, time.monotonic() + FOREVER_S)):
                _send(connection, self._answer(rank, message), time.monotonic() + ANSWER_S)
        except RendezvousError as error:
            authentication.report(self.address, connection.peer, str(error))
            self._add_dead(rank)
        except ChannelError:
            self._add_dead(rank)

    def _register(self, message: Message) -> int:
        rank = message.get("rank")
        if not isinstance(rank, int) or not 0 <= rank < self._ranks:
            raise RendezvousError(f"it claims to be rank {rank!r:.40} of {self._ranks}")
        with self._changed:
            if rank in self._present:
                raise RendezvousError(f"rank {rank} has connected before")
            self._present.add(rank)
        return rank

    def _answer(self, rank: int, message: Message) -> Message:
        within_s = message.get("within_s")
        if not isinstance(within_s, int | float) or not 0 <= within_s <= FOREVER_S:
            raise RendezvousError("its timeout is missing or invalid")
        with self._changed:
            if message.get("name") is None:  # request for dead ranks
                self._changed.wait_for(lambda: self._dead or self._closed, min(within_s, SETTLE_S))
                return {"dead": self._dead[0] if self._dead else None}
            name, value = message["name"], message.get("value")
            if not isinstance(name, str) or not isinstance(value, str):
                raise RendezvousError("its name or value is not a text")
            values = self._values.setdefault(name, {})
            values[rank] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(values) == self._ranks or self._dead or self._closed, within_s)
            if len(values) == self._ranks:
                return {"values": [values[each] for each in range(self._ranks)]}
            if self._dead:
                return {"dead": self._dead[0]}
            return {"missing": sorted(set(range(self._ranks)) - set(values))}


class StoreClient:
    """A rank's connection to the store. Raises RendezvousError if the store is late or lacks the secret."""

    def __init__(self, address: str, rank: int, secret: bytes, deadline_s: float) -> None:
        self._channel = SocketsChannel("tcp", "", secret)
        self._lock = threading.Lock()
        try:
            self._connection = self._channel.connect(address, deadline_s)
            _send(self._connection, {"rank": rank}, deadline_s)
        except ChannelError as error:
            self._channel.close()
            raise RendezvousError(f"rank {rank} cannot reach the driver's store at {address}: {error}") from error

    def all_gather(self, name: str, value: str, deadline_s: float) -> list[str]:
        """Store a value under a name; return the values of all ranks, by rank, once all ranks have called.

        Raises RendezvousError: some ranks did not call before the deadline, or a rank has died.
        """
        answer = self._ask({"name": name, "value": value}, deadline_s)
        if "values" in answer:
            return [str(given) for given in answer["values"]]
        if "dead" in answer:
            raise RendezvousError(f"rank {answer['dead']} is gone")
        raise RendezvousError(f"{names(answer.get('missing', ()))} did not reach the rendezvous {name!r} in time")

    def first_dead(self) -> int | None:
        """Return the first rank that ended without a bye; None without such a rank, or if the store itself is gone."""
        try:
            dead = self._ask({}, time.monotonic() + SETTLE_S).get("dead")
        except RendezvousError:
            return None
        return dead if isinstance(dead, int) else None

    def close(self) -> None:
        """Send `bye` and disconnect. May be called twice."""
        with suppress(ChannelError):  # the store is gone
            _send(self._connection, {"bye": True}, time.monotonic() + ANSWER_S)
        self._channel.close()

    def _ask(self, message: Message, deadline_s: float) -> Message:
        within_s = max(0.0, deadline_s - time.monotonic())
        try:
            with self._lock:
                _send(self._connection, {**message, "within_s": within_s}, deadline_s + ANSWER_S)
                return _receive(self._connection, deadline_s + ANSWER_S)
        except ChannelError as error:
            raise RendezvousError(f"the driver's store is gone: {error}") from error


def _send(connection: SocketsConnection, message: Message, deadline_s: float) -> None:
    connection.send(json.dumps(message).encode(), deadline_s)


def _receive(connection: SocketsConnection, deadline_s: float) -> Message:
    """Receive a JSON object. Raises RendezvousError for any other message."""
    memory = bytearray(MESSAGE_BYTES)
    try:
        size = connection.recv(memory, deadline_s)
    except MessageTooLong as error:
        raise RendezvousError(str(error)) from error
    try:
        message = json.loads(memory[:size])
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise RendezvousError("its message is not a JSON object")
    return message
