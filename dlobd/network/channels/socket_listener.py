"""Where others connect to over TCP. One thread greets all who come at once, so that none has to wait for another.

Who does not know the run's secret, or says anything else than a channel would, or nothing for HANDSHAKE_S, is refused,
with one line on stderr; the listener goes on.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dlobd.errors import SetupError
from dlobd.network.channels import authentication
from dlobd.network.channels.base import Closed, DeadlinePassed
from dlobd.network.channels.socket_connection import SocketsConnection

BACKLOG = 128
"""Who has connected and was not yet greeted. More ask again (tcp(7)); a job has fewer ranks."""

REFUSED_KEPT = 100
"""Of those that were refused, the last ones: who asks for ever must not fill the memory."""

PAUSE_S = 0.1
"""After the kernel had no descriptor for one who came: it asks again at once otherwise."""


@dataclass(slots=True)
class _Coming:
    """One who has connected and was greeted, what it has said since, and what it is to be answered."""

    connected: socket.socket
    peer: str
    greeted: bytes
    until_s: float
    said: bytearray = field(default_factory=bytearray)
    answer: bytes = b""
    fault: str = ""


class SocketsListener:
    """See `dlobd.network.channels.base.Listener`.

    Args:
        host: the IPv4 address to listen on, never all of them.
        scheme: the first word of the address.
        welcome: makes a connection of a socket and its peer's name.

    Raises:
        SetupError: it cannot listen there.
    """

    def __init__(
        self, host: str, scheme: str, secret: bytes, welcome: Callable[[socket.socket, str], SocketsConnection]
    ) -> None:
        self._secret = secret
        self._welcome = welcome
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind((host, 0))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            raise SetupError(f"Nothing can listen on {host}: {error.strerror}.", "choose another interface") from error
        self.address = f"{scheme}:{host}:{self._socket.getsockname()[1]}"
        self.refused: deque[str] = deque(maxlen=REFUSED_KEPT)  # one line each
        self._arrived: deque[SocketsConnection] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._closing = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._serve, name=f"dlobd-listen-{self.address}", daemon=True)
        self._thread.start()

    def accept(self, deadline_s: float) -> SocketsConnection:
        """See the contract."""
        with self._changed:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not self._changed.wait_for(lambda: self._closed or self._arrived, left_s):
                raise DeadlinePassed(f"nobody came to {self.address} in time")
            if self._closed:
                raise Closed(f"{self.address} is closed")
            return self._arrived.popleft()

    def close(self) -> None:
        """See the contract. Who has connected, and was never accepted, is not left to wait."""
        with self._closing:
            with self._changed:
                if self._closed:
                    return
                self._closed = True
                self._changed.notify_all()
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
            self._socket.close()
            for connection in self._arrived:
                connection.close()
            self._arrived.clear()

    def _serve(self) -> None:
        coming: list[_Coming] = []
        with selectors.PollSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closed:
                until_s = min((one.until_s for one in coming), default=None)
                ready = selector.select(None if until_s is None else max(0.0, until_s - time.monotonic()))
                if any(key.fileobj is self._socket for key, _ in ready) and (new := self._greet()):
                    selector.register(new.connected, selectors.EVENT_READ, new)
                    coming.append(new)
                heard = {id(key.data) for key, _ in ready}
                for one in list(coming):
                    verdict = self._hear(one) if id(one) in heard else None
                    if verdict is None and one.until_s > time.monotonic():
                        continue  # it may say more
                    coming.remove(one)
                    selector.unregister(one.connected)
                    if verdict:
                        self._admit(one)
                    else:
                        late = f"it was not done within {authentication.HANDSHAKE_S:g} s"
                        self._refuse(one, one.fault or late)
        for one in coming:
            one.connected.close()

    def _greet(self) -> _Coming | None:
        """Who is first among those that have connected."""
        try:
            connected, (host, port) = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            authentication.report(self.address, "somebody", error.strerror or str(error))
            select.select([self._wake], [], [], PAUSE_S)
            return None
        connected.setblocking(False)
        greeted = authentication.greeting()
        try:
            connected.send(greeted)  # so few bytes always fit into the buffer of a new connection
        except OSError:
            connected.close()  # it has left already
            return None
        return _Coming(connected, f"{host}:{port}", greeted, time.monotonic() + authentication.HANDSHAKE_S)

    def _hear(self, one: _Coming) -> bool | None:
        """Whether one is welcome; None while it has not said enough. A `fault` says why not."""
        try:
            more = one.connected.recv(authentication.HELLO_BYTES - len(one.said))
        except BlockingIOError:
            return None
        except OSError as error:
            one.fault = error.strerror or str(error)
            return False
        one.said += more
        if not authentication.begins_well(one.said):
            one.fault = "it does not speak as a channel of dlobd"
        elif not more:
            one.fault = "it closed the connection before it was authenticated"
        elif len(one.said) < authentication.HELLO_BYTES:
            return None
        elif (answer := authentication.answer(self._secret, one.greeted, bytes(one.said))) is None:
            one.fault = "it does not know the run's secret"
            one.answer = authentication.REFUSAL
        else:
            one.answer = answer
        return not one.fault

    def _admit(self, one: _Coming) -> None:
        try:
            one.connected.send(one.answer)
            connection = self._welcome(one.connected, one.peer)
        except OSError as error:
            self._refuse(one, error.strerror or str(error))
            return
        with self._changed:
            self._arrived.append(connection)  # `close` waits for this thread before it empties it
            self._changed.notify_all()

    def _refuse(self, one: _Coming, why: str) -> None:
        authentication.report(self.address, one.peer, why)
        self.refused.append(f"{one.peer}: {why}")
        try:
            one.connected.send(one.answer)
        except OSError:
            pass  # it does not listen
        one.connected.close()
