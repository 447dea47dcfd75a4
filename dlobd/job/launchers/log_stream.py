"""Sends the trainers' log lines to the driver, so that the user need not open the containers' logs.

The driver listens on one address, and requires a secret of the run. It prints the lines as text.
"""

import hmac
import secrets
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """Address of the listener. The secret is sent with the job's Python functions, never in a log."""

    host: str
    port: int
    secret: str


@contextmanager
def listen(host: str) -> Iterator[tuple[Address, set[str]]]:
    """Print received lines on stdout until the context ends. Yields the address, and the growing set of senders."""
    secret = secrets.token_hex(16)
    senders: set[str] = set()

    class Handler(socketserver.StreamRequestHandler):
        timeout = None

        def handle(self) -> None:
            if not hmac.compare_digest(self.rfile.readline(MAX_LINE_BYTES).strip(), secret.encode()):
                return
            senders.add(self.rfile.readline(MAX_LINE_BYTES).decode(errors="replace").strip())
            while line := self.rfile.readline(MAX_LINE_BYTES):
                sys.stdout.write(line.decode(errors="replace").rstrip() + "\n")
                sys.stdout.flush()

    with socketserver.ThreadingTCPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield Address(host, server.server_address[1], secret), senders
        finally:
            server.shutdown()


def forward(source: BinaryIO, name: str, address: Address) -> None:
    """Send every line of `source` to the driver as `name: line`, and to stderr, which is the container's log.

    If the driver is unreachable, the lines are only in the container's log.
    """
    try:
        sink = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
        sink.sendall(f"{address.secret}\n{name}\n".encode())
    except OSError:
        sink = None
    for line in iter(lambda: source.readline(MAX_LINE_BYTES), b""):
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()
        if sink is not None:
            try:
                sink.sendall(name.encode() + b": " + line.rstrip() + b"\n")
            except OSError:
                sink = None
    if sink is not None:
        sink.close()
