"""Status messages of ranks to the driver: a rank is done, or the cause of its failure.

    rank, or its Python worker                                  driver
             <--- nonce                                         a TCP connection for each message
      {"done": rank}  or
      {"step": count, "loss": loss}  or                         a line of JSON, and a MAC with the run's secret, which
      {"failed": cause}  or                                     is never sent
      {"died": cause},  MAC(secret, "status", nonce, line) --->
             <--- MAC(secret, "received", nonce, line)          acknowledges the stored message

Messages are not pickles. Each message, except about a step, follows a marker with the same content in the job's
storage; the driver reads the marker if the rank cannot reach it. The driver prints steps, for the user. Standard
library only: Python workers import this module early.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import compare_digest
from typing import TYPE_CHECKING

from dlobd import spans as kinds
from dlobd import tracing

if TYPE_CHECKING:
    from dlobd.job.description import Markers

VARIABLE = "_DLOBD_RANK_STATUS"
"""Environment variable with host, port and secret of the driver's server, as JSON, for dlobd's processes only."""

LINE_BYTES = 1 << 16

FIRST_LOOK_S, LONGEST_PAUSE_S = 2.0, 10.0
"""First and longest interval between the driver's reads of the markers. Intervals double, to spare the NameNode."""

SETTLE_S = 0.5  # wait for the report of a death after a failure: a peer of the dead rank may report first

STEPS_S = 2.0
"""Interval of the chief's messages about its steps."""

TIMEOUT_S = 2.0
"""Timeout of each step of a message. A rank that cannot reach the driver then continues: its marker already exists."""


def _mac(secret: bytes, kind: bytes, message: bytes) -> bytes:
    # BLAKE2's keyed mode, because a fork may leave OpenSSL's locks taken; see `dlobd.tracing.clock_sync`
    return hashlib.blake2s(kind + message, key=secret).hexdigest().encode()


class StatusServer:
    """The driver's server for status messages. Raises OSError if it cannot listen on `host`."""

    def __init__(self, host: str, ranks: int) -> None:
        self._ranks = ranks
        self._done: set[int] = set()
        self._causes: dict[str, str] = {}
        self._changed = threading.Condition()
        self._secret = secrets.token_hex(16)
        status = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = TIMEOUT_S

            def handle(self) -> None:
                try:
                    status._receive(self)
                except (OSError, ValueError) as error:
                    # a single write, because threads share stderr
                    sys.stderr.write(f"dlobd: refused a status message of {self.client_address[0]}: {error}\n")

        self._server = socketserver.ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True
        options = {"poll_interval": 0.1}
        threading.Thread(target=self._server.serve_forever, kwargs=options, name="dlobd-status", daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        host, port = self._server.server_address[:2]
        return {VARIABLE: json.dumps({"host": host, "port": port, "secret": self._secret})}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def done(self) -> frozenset[int]:
        with self._changed:
            return frozenset(self._done)

    def failure(self) -> str | None:
        """Return the first cause of a death, else the first cause of a failure."""
        with self._changed:
            return self._causes.get("died") or self._causes.get("failed")

    def final_failure(self, timeout_s: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: "died" in self._causes, timeout_s)
        return self.failure()

    def wait(self, finished: frozenset[int], timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._done > finished or bool(self._causes), timeout_s)

    def _receive(self, handler: socketserver.StreamRequestHandler) -> None:
        secret, nonce = self._secret.encode(), secrets.token_hex(16).encode()
        handler.wfile.write(nonce + b"\n")
        line, proof = handler.rfile.readline(LINE_BYTES), handler.rfile.readline(LINE_BYTES)
        if not compare_digest(proof.strip(), _mac(secret, b"status", nonce + line)):
            raise ValueError("its sender does not have the run's secret")
        self._store(json.loads(line))
        handler.wfile.write(_mac(secret, b"received", nonce + line) + b"\n")

    def _store(self, message: object) -> None:
        with self._changed:
            match message:
                case {"done": int(rank)} if 0 <= rank < self._ranks:
                    tracing.instant(kinds.RANK_DONE, rank=rank)
                    self._done.add(rank)
                case {"step": int(step), "loss": float(loss)}:
                    _print_step(step, loss)
                case {"failed": str(cause)}:
                    self._causes.setdefault("failed", cause)
                case {"died": str(cause)}:
                    self._causes.setdefault("died", cause)
                case _:
                    raise ValueError(f"it has unknown content {message!r:.80}")
            self._changed.notify_all()


def send(message: Mapping[str, str | int | float], environment: Mapping[str, str] = os.environ) -> bool:
    """Send a message to the driver; return False if there is no driver or it cannot be reached. Never raises."""
    try:
        server = json.loads(environment[VARIABLE])
        address, secret = (str(server["host"]), int(server["port"])), str(server["secret"]).encode()
    except (KeyError, TypeError, ValueError):
        return False
    line = json.dumps(message).encode() + b"\n"
    try:
        with socket.create_connection(address, TIMEOUT_S) as connection, connection.makefile("rb") as responses:
            nonce = responses.readline(LINE_BYTES).strip()
            connection.sendall(line + _mac(secret, b"status", nonce + line) + b"\n")
            return compare_digest(responses.readline(LINE_BYTES).strip(), _mac(secret, b"received", nonce + line))
    except OSError:
        return False


@contextmanager
def reporting_steps(losses: Sequence[float]) -> Iterator[None]:
    """Report the number of `losses` and the last of them at intervals. A thread reports, so that no step waits.

    Without a server, the ranks have the driver's stdout."""
    ended = threading.Event()

    def report() -> None:
        reported, last = 0, False
        while not last:
            last = ended.wait(STEPS_S)
            if (steps := len(losses)) > reported:
                reported, loss = steps, losses[steps - 1]
                send({"step": steps, "loss": loss}) if VARIABLE in os.environ else _print_step(steps, loss)

    threading.Thread(target=report, name="dlobd-steps", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _print_step(step: int, loss: float) -> None:
    # a single write, because threads share stdout
    sys.stdout.write(f"{kinds.TRAINING_LINE}{json.dumps({'step': step, 'loss': loss})}\n")
    sys.stdout.flush()


class JobStatus:
    """Status of a job's ranks in its driver, from their messages and, at intervals, from their markers.

    Its pickle, for executors, is its `Markers`, which have the same `report_failure` and `report_death`. If the driver
    cannot listen, there is no server, and only the markers are read.
    """

    def __init__(self, markers: Markers, server: StatusServer | None) -> None:
        self._markers = markers
        self._server = server
        self._lock = threading.Lock()
        self._marked: tuple[frozenset[int], str | None] = (frozenset(), None)
        self._pause_s = FIRST_LOOK_S
        self._next_s = time.monotonic() + FIRST_LOOK_S

    def __reduce__(self) -> tuple[Callable[[Markers], Markers], tuple[Markers]]:
        return copy.copy, (self._markers,)

    def finished(self) -> frozenset[int]:
        """Return the ranks that are known to be done: trained, evaluated and saved."""
        self._read_if_due()
        return self._marked[0] | (self._server.done() if self._server else frozenset())

    def failure(self) -> str | None:
        """Return the cause of a failure in one line; None if there is no known failure."""
        reported = self._server.failure() if self._server else None
        if reported is None:
            self._read_if_due()
        return reported or self._marked[1]

    def final_failure(self) -> str | None:
        """Wait for late messages after the job has failed, read the markers, and return the cause."""
        reported = self._server.final_failure(SETTLE_S) if self._server else None
        if reported is None:
            self._read()
        if failure := reported or self._marked[1]:
            tracing.instant(kinds.TRAINING_FAILED, cause=failure)
        return failure

    def wait(self, finished: frozenset[int], timeout_s: float) -> None:
        """Wait until a rank outside of `finished` is done, a rank has failed, or the timeout expires."""
        if self._server:
            self._server.wait(finished, timeout_s)
        else:
            time.sleep(timeout_s)

    def report_failure(self, cause: str) -> None:
        self._markers.report_failure(cause)

    def _read_if_due(self) -> None:
        with self._lock:
            if time.monotonic() < self._next_s:
                return
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._next_s = time.monotonic() + self._pause_s
        self._read()

    def _read(self) -> None:
        ranks, failure = self._markers.read()
        self._marked = frozenset(ranks), failure
