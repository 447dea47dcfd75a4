"""Exchanges of messages between two clocks: a client asks the server for the time of another clock domain.

    client                                             server (the driver)
      sent_a  -- nonce, MAC --------------------------> received_b
      received_a <------- nonce, received_b, sent_b, MAC --- sent_b

An exchange is one UDP datagram each way, authenticated by a secret of the run: both ends ignore other processes. Lost
datagrams are repeated in the next burst. An unreachable server costs its clients one short wait per burst, and the
offset stays unknown. `dlobd.tracing.clock_offset` computes intervals from the exchanges.
"""

import hashlib
import json
import os
import secrets
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest

from dlobd.tracing import clock
from dlobd.tracing.clock_offset import Exchange

VARIABLE = "_DLOBD_CLOCK"
"""Variable with host, port, secret and clock domain of the server, as JSON. For dlobd's processes only."""

BURST = 8
"""Exchanges in one burst: the fastest request and the fastest response bound the offset."""

TIMEOUT_S = 0.2
"""Timeout of one response. The first lost response ends the burst."""

_NONCE_BYTES = 16
_MAC_BYTES = 32
_TIMES = struct.Struct("<qq")
_QUESTION, _ANSWER = b"dlobd clock?", b"dlobd clock!"


def _mac(secret: bytes, kind: bytes, message: bytes) -> bytes:
    # BLAKE2's own keyed mode, not OpenSSL's: a Python worker may fork while its recorder's thread exchanges, and a fork
    # during an OpenSSL call leaves OpenSSL's locks taken in the child, where TensorFlowOnSpark's manager waits for them
    return hashlib.blake2s(kind + message, key=secret).digest()


class Server:
    """Server of this process's clock, in a thread, until it is closed. Raises OSError if it cannot listen on `host`."""

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
        """Environment variable by which clients find this server."""
        address = {"host": self.host, "port": self.port, "secret": self._secret, "domain": clock.domain()}
        return {VARIABLE: json.dumps(address)}

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
                # a response that cannot be sent: the client repeats its request

    def close(self) -> None:
        """Stop the server."""
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        except OSError:
            pass  # Linux reports an unconnected datagram socket, and wakes the thread anyway
        self._thread.join(1)
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Peer:
    """Clock server in another clock domain."""

    host: str
    port: int
    secret: str
    domain: str

    def exchange(self, count: int = BURST) -> list[Exchange]:
        """Make up to `count` exchanges, fewer after a timeout; never raises."""
        secret = self.secret.encode()
        exchanges: list[Exchange] = []
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
                        break  # a late response, or a response of another process
                    received_b_ns, sent_b_ns = _TIMES.unpack(message[_NONCE_BYTES:])
                    exchanges.append(Exchange(sent_ns, received_b_ns, sent_b_ns, received_ns))
        except (OSError, struct.error):
            pass  # no listener, or a firewall: the offset stays unknown
        return exchanges


def peer(environment: Mapping[str, str] = os.environ) -> Peer | None:
    """Return the clock server in the environment; None if there is no server, or it is in this process's clock
    domain."""
    try:
        server = Peer(**json.loads(environment[VARIABLE]))
    except (KeyError, TypeError, ValueError):
        return None
    return None if server.domain == clock.domain() else server
