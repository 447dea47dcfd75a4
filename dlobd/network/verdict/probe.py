"""Probe of a device: this process sends bytes to itself for a second, and records the counters before and after.

`python -m dlobd.network.verdict.probe LIBRARY TRANSPORT DEVICE` prints the evidence as JSON. It is a separate process
because it loads native libraries and uses drivers that may hang: its parent can kill it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Connection, Traffic
from dlobd.network.verdict.evidence import Snapshot, record

PROBE_S = 1.0
MESSAGE_BYTES = 1 << 20
TIMEOUT_S = 15.0
"""Timeout for connecting and for each message: a software device under emulation needs seconds to set up."""


def probe(library: str, transport: str, device: str, seconds: float = PROBE_S) -> dict[str, Any]:
    """Return the attributes of `TransportEvidence`, for rank 0.

    Raises:
        ChannelError, DlobdError: the channel cannot be used; the message is one line.
    """
    make = LIBRARIES.get(library)
    before = Snapshot.read()
    here, there = make(transport, device), make(transport, device)
    try:
        listener = there.listen(device)
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(lambda: _receive(listener.accept(time.monotonic() + TIMEOUT_S)))
            _send(here.connect(listener.address, time.monotonic() + TIMEOUT_S), seconds)
            other.result()
        traffic = _both(here.evidence(), there.evidence())
        return record(0, library, before, traffic=traffic, addresses=[listener.address])
    finally:
        here.close()
        there.close()


def _send(connection: Connection, seconds: float) -> None:
    message, end = bytearray(MESSAGE_BYTES), time.monotonic() + seconds
    while time.monotonic() < end:
        connection.send(message, time.monotonic() + TIMEOUT_S)
    connection.send(b"", time.monotonic() + TIMEOUT_S)


def _receive(connection: Connection) -> None:
    memory = bytearray(MESSAGE_BYTES)
    while connection.recv(memory, time.monotonic() + TIMEOUT_S):
        pass


def _both(here: Traffic, there: Traffic) -> Traffic:
    """Add up the traffic of both ends; one of them may not know its kind yet."""
    sums = {
        field.name: getattr(here, field.name) + getattr(there, field.name)
        for field in dataclasses.fields(Traffic)
        if field.name not in ("kind", "device")
    }
    return Traffic(here.kind, here.device, **sums)


if __name__ == "__main__":
    library, transport, device = sys.argv[1:]
    print(json.dumps(probe(library, transport, device)))
