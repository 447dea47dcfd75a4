"""Probe of a device: this process sends bytes to itself for a second, and records the counters before and after.

`python -m dlobd.network.verdict.probe LIBRARY TRANSPORT DEVICE` prints the evidence as JSON. It is a separate process
because it loads native libraries and uses drivers that may hang: its parent can kill it.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Connection, total_traffic
from dlobd.network.verdict.evidence import Snapshot, record

PROBE_S = 1.0
MESSAGE_BYTES = 1 << 20
TIMEOUT_S = 15.0
"""Timeout for connecting and for each message: a software device under emulation needs seconds to set up."""


def probe(library: str, transport: str, device: str, seconds: float = PROBE_S) -> dict[str, Any]:
    """Probe a device, and return the attributes of `TransportEvidence` for rank 0.

    Raises ChannelError, DlobdError: the channel cannot be used; the message is one line.
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
        # the kind may still be unknown at the listening end
        own = here.evidence()
        traffic = replace(total_traffic((own, there.evidence())), kind=own.kind, device=own.device)
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


if __name__ == "__main__":
    library, transport, device = sys.argv[1:]
    print(json.dumps(probe(library, transport, device)))
