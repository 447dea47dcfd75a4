"""The address book: a server in the driver through which ranks tell each other short words, such as where they listen.

    rank r                                       book
      {"rank": r}                        --->               the connection is authenticated before: see
      {"name": N, "value": V, "within_s": S} -> keeps V     `dlobd.network.channels.authentication`
             <--- {"values": [...]}                         once all ranks gave a value under N; or
             <--- {"missing": [ranks]}                      once S seconds have passed; or
             <--- {"dead": rank}                            as soon as a rank's connection ended without a bye
      {"bye": true}                      --->

Messages are JSON of at most MESSAGE_BYTES, over the channel of sockets; nothing is unpickled. A rank keeps its
connection until it ends, so that the book knows which rank died first: the others only see their own neighbours go.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from dlobd.network.channels import authentication
from dlobd.network.channels.base import ChannelError, Closed, DeadlinePassed, PeerClosed
from dlobd.network.channels.socket_connection import SocketsConnection
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.formation.reception import FOR_EVER_S, Reception

MESSAGE_BYTES = 1 << 20
"""The longest message: sixteen ranks' worker addresses of some kilobytes each."""

ANSWER_S = 5.0
"""How long the book may take beyond what it was told to wait: it only has to wake up."""

GRIEF_S = 1.0
"""How long the book waits for a death to be told of: the kernel closes all connections of a process that died, this one
perhaps after the one by which a neighbour noticed it."""


class FormationError(Exception):
    """Ranks did not meet; one line that names those that are missing or gone."""


class AddressBook:
    """The server. Its threads end with `close`.

    Args:
        host: the address to listen on, one of this host's.
        ranks: how many there are.
        secret: of the run; who does not know it is refused, with one line on stderr.

    Raises:
        SetupError: nothing can listen there.
    """

    def __init__(self, host: str, ranks: int, secret: bytes) -> None:
        self._ranks = ranks
        self._values: dict[str, dict[int, str]] = {}
        self._present: set[int] = set()
        self._dead: list[int] = []  # in the order in which they went
        self._changed = threading.Condition()
        self._closed = False
        self._reception = Reception(host, secret, "dlobd-address-book")
        self._reception.start(self._serve)

    @property
    def address(self) -> str:
        """Where ranks find it."""
        return self._reception.address

    def close(self) -> None:
        """Ranks that still wait are told that it is gone. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._reception.close()

    def _serve(self, connection: SocketsConnection) -> None:
        """One connection, until its rank says bye, goes, or says what makes no sense."""
        rank = -1
        try:
            rank = self._register(_received(connection, time.monotonic() + ANSWER_S))
            while "bye" not in (message := _received(connection, time.monotonic() + FOR_EVER_S)):
                _send(connection, self._answer(rank, message), time.monotonic() + ANSWER_S)
        except FormationError as error:
            authentication.report(self.address, connection.peer, str(error))
            self._gone(rank)
        except ChannelError:
            self._gone(rank)

    def _register(self, message: dict[str, Any]) -> int:
        rank = message.get("rank")
        if not isinstance(rank, int) or not 0 <= rank < self._ranks:
            raise FormationError(f"it says that it is rank {rank!r:.40} of {self._ranks}")
        with self._changed:
            if rank in self._present:
                raise FormationError(f"rank {rank} has come before")
            self._present.add(rank)
        return rank

    def _gone(self, rank: int) -> None:
        with self._changed:
            if rank >= 0 and not self._closed:
                self._dead.append(rank)
                self._changed.notify_all()

    def _answer(self, rank: int, message: dict[str, Any]) -> dict[str, Any]:
        within_s = message.get("within_s")
        if not isinstance(within_s, int | float) or not 0 <= within_s <= FOR_EVER_S:
            raise FormationError("it does not say how long it can wait")
        with self._changed:
            if message.get("name") is None:  # it only asks who is dead
                self._changed.wait_for(lambda: self._dead or self._closed, min(within_s, GRIEF_S))
                return {"dead": self._dead[0] if self._dead else None}
            name, value = message["name"], message.get("value")
            if not isinstance(name, str) or not isinstance(value, str):
                raise FormationError("a name or a value is no text")
            given = self._values.setdefault(name, {})
            given[rank] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(given) == self._ranks or self._dead or self._closed, within_s)
            if len(given) == self._ranks:
                return {"values": [given[each] for each in range(self._ranks)]}
            if self._dead:
                return {"dead": self._dead[0]}
            return {"missing": sorted(set(range(self._ranks)) - set(given))}


class Entry:
    """A rank's line to the book.

    Args:
        address: of the book.
        deadline_s: a time of time.monotonic().

    Raises:
        FormationError: the book does not answer in time, or does not know the secret.
    """

    def __init__(self, address: str, rank: int, secret: bytes, deadline_s: float) -> None:
        self._channel = SocketsChannel("tcp", "", secret)
        self._lock = threading.Lock()
        try:
            self._connection = self._channel.connect(address, deadline_s)
            _send(self._connection, {"rank": rank}, deadline_s)
        except ChannelError as error:
            self._channel.close()
            raise FormationError(f"rank {rank} cannot reach the driver's address book at {address}: {error}") from error

    def exchange(self, name: str, value: str, deadline_s: float) -> list[str]:
        """What all ranks gave under this name, in the order of their ranks, once all have.

        Raises:
            FormationError: some did not by the deadline, or one has died.
        """
        answer = self._ask({"name": name, "value": value}, deadline_s)
        if "values" in answer:
            return [str(given) for given in answer["values"]]
        if "dead" in answer:
            raise FormationError(f"rank {answer['dead']} is gone")
        missing = " and ".join(f"rank {rank}" for rank in answer.get("missing", ()))
        raise FormationError(f"{missing} did not come to {name!r} in time")

    def first_dead(self) -> int | None:
        """The rank that went first without a bye; None if none has, or the book itself is gone."""
        try:
            dead = self._ask({}, time.monotonic() + GRIEF_S).get("dead")
        except FormationError:
            return None
        return dead if isinstance(dead, int) else None

    def close(self) -> None:
        """Says bye. May be called twice."""
        try:
            _send(self._connection, {"bye": True}, time.monotonic() + ANSWER_S)
        except ChannelError:
            pass  # the book has gone before
        self._channel.close()

    def _ask(self, message: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        within_s = max(0.0, deadline_s - time.monotonic())
        try:
            with self._lock:
                _send(self._connection, {**message, "within_s": within_s}, deadline_s + ANSWER_S)
                return _received(self._connection, deadline_s + ANSWER_S)
        except ChannelError as error:
            raise FormationError(f"the driver's address book is gone: {error}") from error


def _send(connection: SocketsConnection, message: dict[str, Any], deadline_s: float) -> None:
    connection.send(json.dumps(message).encode(), deadline_s)


def _received(connection: SocketsConnection, deadline_s: float) -> dict[str, Any]:
    """Raises FormationError for what is no message."""
    memory = bytearray(MESSAGE_BYTES)
    try:
        size = connection.recv(memory, deadline_s)
    except (DeadlinePassed, PeerClosed, Closed):
        raise
    except ChannelError as error:
        raise FormationError(str(error)) from error
    try:
        message = json.loads(memory[:size])
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise FormationError("it says what is no message")
    return message
