"""What ranks tell the driver while they run: that they are done, or why one fails.

    rank, or its Python worker                                  driver
             <--- nonce                                         a TCP connection for each notice
      {"done": rank}  or
      {"failed": cause}  or                                     a line of JSON, and one that proves that its sender
      {"died": cause},  MAC(secret, "notice", nonce, line) ---> knows the secret of the run, which never travels
             <--- MAC(secret, "heard", nonce, line)             once it is kept

Nothing is unpickled. A notice says what a marker in the job's storage says too, and comes after it: a driver that
cannot be reached finds the marker. Standard library only: Python workers import it early.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import socketserver
import sys
import threading
from collections.abc import Mapping
from secrets import compare_digest
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing

VARIABLE = "_DLOBD_NOTICES"
"""Where a process finds the driver: host, port and secret, as JSON. Between dlobd's processes only."""

LINE_BYTES = 1 << 16
DEADLINE_S = 2.0
"""For each step of a notice. A rank waits no longer at its end for a driver that cannot be reached: its marker is
there."""


def _mac(secret: bytes, kind: bytes, message: bytes) -> bytes:
    # BLAKE2's own keyed mode, not OpenSSL's, whose locks a fork may leave taken: see `dlobd.tracing.clock_sync`
    return hashlib.blake2s(kind + message, key=secret).hexdigest().encode()


class Notices:
    """The driver's end. Its threads end with `close`.

    Args:
        host: the address to listen on, one of this host's.
        ranks: how many there are.

    Raises:
        OSError: nothing can listen there.
    """

    def __init__(self, host: str, ranks: int) -> None:
        self._ranks = ranks
        self._done: set[int] = set()
        self._causes: dict[str, str] = {}
        self._changed = threading.Condition()
        self._secret = secrets.token_hex(16)
        notices = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = DEADLINE_S

            def handle(self) -> None:
                try:
                    notices._hear(self)
                except (OSError, ValueError) as error:
                    # one write: other threads say the same
                    sys.stderr.write(f"dlobd: refused a notice of {self.client_address[0]}: {error}\n")

        self._server = socketserver.ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True
        accepting = {"poll_interval": 0.1}
        threading.Thread(target=self._server.serve_forever, kwargs=accepting, name="dlobd-notices", daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to tell something."""
        host, port = self._server.server_address[:2]
        return {VARIABLE: json.dumps({"host": host, "port": port, "secret": self._secret})}

    def close(self) -> None:
        """Nothing is heard any more."""
        self._server.shutdown()
        self._server.server_close()

    def done(self) -> frozenset[int]:
        """The ranks that have said so."""
        with self._changed:
            return frozenset(self._done)

    def failure(self) -> str | None:
        """The first cause that was told; that of a death, whichever came first."""
        with self._changed:
            return self._causes.get("died") or self._causes.get("failed")

    def last_word(self, within_s: float) -> str | None:
        """The same, once a death was told, or after so long."""
        with self._changed:
            self._changed.wait_for(lambda: "died" in self._causes, within_s)
        return self.failure()

    def wait(self, known: frozenset[int], within_s: float) -> None:
        """Returns as soon as more ranks are done than those, or one has failed; at the latest after so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._done > known or bool(self._causes), within_s)

    def _hear(self, handler: socketserver.StreamRequestHandler) -> None:
        """Raises ValueError for what is no notice, or not of this run."""
        secret, nonce = self._secret.encode(), secrets.token_hex(16).encode()
        handler.wfile.write(nonce + b"\n")
        line, proof = handler.rfile.readline(LINE_BYTES), handler.rfile.readline(LINE_BYTES)
        if not compare_digest(proof.strip(), _mac(secret, b"notice", nonce + line)):
            raise ValueError("its sender does not know the run's secret")
        self._keep(json.loads(line))
        handler.wfile.write(_mac(secret, b"heard", nonce + line) + b"\n")

    def _keep(self, message: Any) -> None:
        match message:
            case {"done": int(rank)} if 0 <= rank < self._ranks:
                tracing.instant(kinds.RANK_DONE, rank=rank)
                with self._changed:
                    self._done.add(rank)
                    self._changed.notify_all()
            case {"failed": str()} | {"died": str()}:
                with self._changed:
                    self._causes = {**message, **self._causes}  # the first of a kind counts
                    self._changed.notify_all()
            case _:
                raise ValueError(f"it says {message!r:.80}")


def tell(message: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> bool:
    """Tells the driver. False where there is none to tell, or where it cannot be reached: nothing is ever raised."""
    try:
        place = json.loads(environment[VARIABLE])
        address, secret = (str(place["host"]), int(place["port"])), str(place["secret"]).encode()
    except (KeyError, TypeError, ValueError):
        return False
    line = json.dumps(message).encode() + b"\n"
    try:
        with socket.create_connection(address, DEADLINE_S) as connection, connection.makefile("rb") as answers:
            nonce = answers.readline(LINE_BYTES).strip()
            connection.sendall(line + _mac(secret, b"notice", nonce + line) + b"\n")
            return compare_digest(answers.readline(LINE_BYTES).strip(), _mac(secret, b"heard", nonce + line))
    except OSError:
        return False
