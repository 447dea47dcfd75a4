"""A parameter server's process, `python -m dlobd.network.exchanges.ps.server`.

It is a fresh one, which has neither TensorFlow nor its memory; its parent is one of the workers. It hears its place on
stdin, one JSON line (`Place`), says on stdout where it listens, and ends once all workers have left or stdin ends: the
kernel closes that when its parent dies, however that happens. One thread for each worker receives and sends; memory is
allocated once for each form of a call. What it serves is `dlobd.network.exchanges.ps.serving`.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from dataclasses import dataclass

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel, ChannelError, Connection
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.ps.accumulating import AccumulatingServer
from dlobd.network.exchanges.ps.serving import END_S, TEXT_BYTES, Server
from dlobd.network.exchanges.ps.summing import SummingServer
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record

RANK = struct.Struct("<I")
"""What a worker says first."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a server is told.

    index: of this server.
    workers: how many push.
    transport, device, library: of its channel; the device is one of its host's.
    asynchronous: whether workers do not wait for each other.
    secret: of the run.
    join_s, within_s: how long it waits for its workers to connect, and in a call for the last of them.
    spans_dir: where it records; empty: nowhere.
    """

    index: int
    workers: int
    transport: str
    device: str
    library: str
    asynchronous: bool
    secret: str
    join_s: float
    within_s: float
    spans_dir: str


def main() -> None:
    """See the module."""
    line = b""
    while not line.endswith(b"\n"):
        if not (more := os.read(0, TEXT_BYTES)):
            return  # the parent is gone
        line += more
    place = Place(**json.loads(line))
    if place.spans_dir:
        tracing.start(place.spans_dir, "ps", place.index)
    before = Snapshot.read()
    channel: Channel = LIBRARIES.get(place.library)(place.transport, place.device, place.secret.encode())
    server: list[Server] = []  # once all workers have come
    threading.Thread(target=_end_with_stdin, args=(channel, server), daemon=True).start()
    try:
        make = AccumulatingServer if place.asynchronous else SummingServer
        server.append(make(place.index, _welcome(channel, place), place.within_s))
        server[0].serve()
        told = channel.evidence()
        found = record(place.index, place.library, before, lanes=told.lanes, traffic=told, server=True)
        tracing.instant(kinds.TRANSPORT, **found)
    except (ChannelError, ExchangeFailed) as error:
        sys.exit(f"dlobd: ps-{place.index}: {error}")
    finally:
        channel.close()
        tracing.flush()


def _welcome(channel: Channel, place: Place) -> dict[int, Connection]:
    """Says where it listens, and waits for all workers."""
    deadline_s = time.monotonic() + place.join_s
    listener = channel.listen()
    try:
        print(json.dumps(listener.address), flush=True)
        found: dict[int, Connection] = {}
        while len(found) < place.workers:
            connection = listener.accept(deadline_s)
            said = bytearray(RANK.size)
            connection.recv(said, deadline_s)
            (rank,) = RANK.unpack(said)
            if rank in found or rank >= place.workers:
                raise ExchangeFailed(f"{connection.peer} says that it is rank {rank}, which is not awaited")
            found[rank] = connection
    finally:
        listener.close()
    return found


def _end_with_stdin(channel: Channel, server: list[Server]) -> None:
    """The parent has left, or died. If it has left, it has its last sum, but others may not have theirs yet."""
    while os.read(0, TEXT_BYTES):  # and not sys.stdin: its lock would be held when the interpreter ends
        pass
    for each in server:
        each.finish(END_S)
    channel.close()
    time.sleep(END_S)
    tracing.flush()
    os._exit(1)  # something does not end, although all its connections are closed


if __name__ == "__main__":
    main()
