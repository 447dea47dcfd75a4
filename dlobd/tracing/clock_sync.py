"""Message pairs between two clocks: a server tells its own, a client of another clock domain asks.

    client                                             server (the driver)
      sent_a  -- nonce, MAC --------------------------> received_b
      received_a <------- nonce, received_b, sent_b, MAC --- sent_b

One UDP datagram each way, authenticated by a secret of the run: no other process is answered or believed. What is
lost is asked again the next time. A server that cannot be reached costs its clients one short wait a burst and nothing
else: the offset stays unknown. `dlobd.tracing.clock_offset` makes intervals of what is exchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest

from dlobd.tracing import clock
from dlobd.tracing.clock_offset import Exchange

VARIABLE = "_DLOBD_CLOCK"
"""Where a process finds the server: host, port, secret and clock domain, as JSON. Between dlobd's processes only."""

BURST = 8
"""Exchanges at a time: the quickest way there and the quickest way back are what bounds an offset."""

TIMEOUT_S = 0.2
"""For one answer. The first that does not come ends its burst."""

TRIES = 20
"""Bursts of `main`, each of which a machine that stalls may cut short."""

_NONCE_BYTES = 16
_MAC_BYTES = 32
_TIMES = struct.Struct("<qq")
_QUESTION, _ANSWER = b"dlobd clock?", b"dlobd clock!"


def _mac(secret: bytes, kind: bytes, message: bytes) -> bytes:
    # BLAKE2's own keyed mode, not OpenSSL's: a Python worker forks while its recorder's thread asks, and a fork in the
    # middle of an OpenSSL call leaves its locks taken in the child, where TensorFlowOnSpark's manager waits for them
    return hashlib.blake2s(kind + message, key=secret).digest()


class Server:
    """Answers with its own clock from a thread, until it is closed.

    Args:
        host: the address of this machine to listen on, never all of them.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(self, host: str) -> None:
        self._secret = secrets.token_hex(16)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, 0))
        except OSError:
            self._socket.close()
            raise
        self.host, self.port = self._socket.getsockname()
        self._closed = False
        self._thread = threading.Thread(target=self._answer, name="dlobd-clock", daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to ask."""
        place = {"host": self.host, "port": self.port, "secret": self._secret, "domain": clock.domain()}
        return {VARIABLE: json.dumps(place)}

    def _answer(self) -> None:
        secret = self._secret.encode()
        while True:
            try:
                question, sender = self._socket.recvfrom(512)
                received_ns = clock.monotonic_ns()
                nonce, mac = question[:_NONCE_BYTES], question[_NONCE_BYTES:]
                if self._closed:
                    return
                if not compare_digest(mac, _mac(secret, _QUESTION, nonce)):
                    continue
                message = nonce + _TIMES.pack(received_ns, clock.monotonic_ns())
                self._socket.sendto(message + _mac(secret, _ANSWER, message), sender)
            except OSError:
                if self._closed:
                    return
                # one answer that cannot be sent; its asker asks again

    def close(self) -> None:
        """Ends it."""
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread: it receives nothing
        except OSError:
            pass  # Linux says that a datagram socket is not connected, and wakes it all the same
        self._thread.join(1)
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Peer:
    """A clock of another domain that answers."""

    host: str
    port: int
    secret: str
    domain: str

    def exchange(self, count: int = BURST) -> list[Exchange]:
        """At most `count` exchanges, fewer if an answer does not come in time; nothing is ever raised."""
        secret = self.secret.encode()
        found: list[Exchange] = []
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.settimeout(TIMEOUT_S)
                asking.connect((self.host, self.port))
                for _ in range(count):
                    nonce = secrets.token_bytes(_NONCE_BYTES)
                    question = nonce + _mac(secret, _QUESTION, nonce)
                    sent_ns = clock.monotonic_ns()
                    asking.send(question)
                    answer = asking.recv(512)
                    received_ns = clock.monotonic_ns()
                    message, mac = answer[:-_MAC_BYTES], answer[-_MAC_BYTES:]
                    if message[:_NONCE_BYTES] != nonce or not compare_digest(mac, _mac(secret, _ANSWER, message)):
                        break  # a late answer, or another process's
                    received_b_ns, sent_b_ns = _TIMES.unpack(message[_NONCE_BYTES:])
                    found.append(Exchange(sent_ns, received_b_ns, sent_b_ns, received_ns))
        except (OSError, struct.error):
            pass  # no listener, or nothing comes through: the offset stays unknown
        return found


def peer(environment: Mapping[str, str] = os.environ) -> Peer | None:
    """The clock to ask; None where none is named, or where it is this process's own."""
    try:
        found = Peer(**json.loads(environment[VARIABLE]))
    except (KeyError, TypeError, ValueError):
        return None
    return None if found.domain == clock.domain() else found


def main() -> None:
    """`python -m dlobd.tracing.clock_sync COUNT`: the domain of this process, and its exchanges with the server in the
    environment, also where that has the same clock; one JSON line each. For `analysis/clock_width.py` and the tests."""
    asked = Peer(**json.loads(os.environ[VARIABLE]))
    print(json.dumps(clock.domain()))
    left = int(sys.argv[1])
    for _ in range(TRIES):
        for each in asked.exchange(left):
            print(json.dumps([each.sent_a_ns, each.received_b_ns, each.sent_b_ns, each.received_a_ns]))
            left -= 1


if __name__ == "__main__":
    main()
