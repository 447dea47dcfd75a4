"""One second of bytes from this process to itself over a device, with the counters before and after.

`python -m dlobd.network.transport.probe LIBRARY TRANSPORT DEVICE` prints the evidence as JSON. It is a process of its
own, as it loads native libraries and talks to drivers that may not answer: who starts it can end it.
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
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record

PROBE_S = 1.0
MESSAGE_BYTES = 1 << 20
PATIENCE_S = 15.0
"""For connecting and for each message: a software device under emulation needs seconds to set up."""


def probe(library: str, transport: str, device: str, seconds: float = PROBE_S) -> dict[str, Any]:
    """The attributes of `TransportEvidence`, of rank 0.

    Raises:
        ChannelError, DlobdError: the channel cannot be used; the message is one line.
    """
    make = LIBRARIES.get(library)
    before = Snapshot.read()
    here, there = make(transport, device), make(transport, device)
    try:
        listener = there.listen(device)
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(lambda: _take(listener.accept(time.monotonic() + PATIENCE_S)))
            _give(here.connect(listener.address, time.monotonic() + PATIENCE_S), seconds)
            other.result()
        traffic = _both(here.evidence(), there.evidence())
        return record(0, library, before, traffic=traffic, addresses=[listener.address])
    finally:
        here.close()
        there.close()


def _give(connection: Connection, seconds: float) -> None:
    message, end = bytearray(MESSAGE_BYTES), time.monotonic() + seconds
    while time.monotonic() < end:
        connection.send(message, time.monotonic() + PATIENCE_S)
    connection.send(b"", time.monotonic() + PATIENCE_S)


def _take(connection: Connection) -> None:
    memory = bytearray(MESSAGE_BYTES)
    while connection.recv(memory, time.monotonic() + PATIENCE_S):
        pass


def _both(here: Traffic, there: Traffic) -> Traffic:
    """What both ends carried; one of them may know no kind yet."""
    sums = {
        field.name: getattr(here, field.name) + getattr(there, field.name)
        for field in dataclasses.fields(Traffic)
        if field.name not in ("kind", "device")
    }
    return Traffic(here.kind, here.device, **sums)


if __name__ == "__main__":
    library, transport, device = sys.argv[1:]
    print(json.dumps(probe(library, transport, device)))
