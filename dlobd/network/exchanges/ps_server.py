"""A parameter server: sums its shard of what all workers push, and hands the sum back to each.

    worker                                  server i
      [type, elements]              --->               of the shard that is this server's, as JSON
      the shard                     --->    receive
             <--- nothing, or why it fails             once all have pushed
                                            sum        in the order of the ranks: the same bits whoever comes first
             <--- OK and the sum; or FAILED
             <--- after FAILED: why         send
      nothing                       --->               this worker leaves
      a text, as JSON               --->               it leaves because something failed, which the others are told

A server is a fresh process, `python -m dlobd.network.exchanges.ps_server`, which has neither TensorFlow nor its
memory. Its parent is one of the workers. It hears its place on stdin, one JSON line (`Place`), says on stdout where it
listens, and ends once all workers have left or stdin ends: the kernel closes that when its parent dies, however that
happens. One thread for each worker receives and sends; memory is allocated once for each form of a call.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel, ChannelError, Connection
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.gathering import Gathering
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record
from dlobd.tracing import names

RANK = struct.Struct("<I")
"""What a worker says first."""

OK, FAILED = b"\0", b"\1"
"""The first byte of the last answer. A failure has no other one, so that it fits into any worker's buffers."""

TEXT_BYTES = 1 << 16
"""The longest form or reason."""

BETWEEN_CALLS_S = 7 * 86_400.0
"""How long a worker may compute, evaluate or save between two calls. A dead one ends its connection."""

END_S = 5.0
"""How long the end of a connection or of a process may take."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a server is told.

    index: of this server.
    workers: how many push.
    transport, device, library: of its channel; the device is one of its host's.
    secret: of the run.
    join_s, within_s: how long it waits for its workers to connect, and in a call for the last of them.
    spans_dir: where it records; empty: nowhere.
    """

    index: int
    workers: int
    transport: str
    device: str
    library: str
    secret: str
    join_s: float
    within_s: float
    spans_dir: str


class Server:
    """What its threads share: what is pushed, and where they meet.

    Args:
        connections: rank to the connection to it, for all ranks from 0.
        within_s: see `Place`.
    """

    def __init__(self, connections: Mapping[int, Connection], within_s: float) -> None:
        self._connections = connections
        self._within_s = within_s
        self._gathering = Gathering(len(connections), within_s)
        self._forms: dict[int, str] = {}  # of the call under way
        self._pushed: dict[tuple[int, str], NDArray[Any]] = {}
        self._totals: dict[str, NDArray[Any]] = {}
        self._answered = threading.Condition()
        self._unanswered: set[int] = set()

    def serve(self) -> None:
        """Returns once all workers have left."""
        threads = [
            threading.Thread(target=self._serve, args=(rank,), name=f"rank-{rank}", daemon=True)
            for rank in self._connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def finish(self, within_s: float) -> None:
        """Returns once all calls that have begun are answered, or fail, or the time has passed."""
        with self._answered:
            self._answered.wait_for(lambda: not self._unanswered, within_s)

    def _serve(self, rank: int) -> None:
        """One worker, until it leaves."""
        connection = self._connections[rank]
        said = bytearray(TEXT_BYTES)
        try:
            while size := connection.recv(said, time.monotonic() + BETWEEN_CALLS_S):
                self._unanswered.add(rank)
                self._call(rank, connection, said[:size].decode())
                self._is_answered(rank)
            self._gathering.fail(f"rank {rank} has left")
        except ChannelError as error:
            self._gathering.fail(f"rank {rank} is gone ({error})")
        except ExchangeFailed as error:
            self._gathering.fail(str(error))
        except (ValueError, TypeError) as error:
            self._gathering.fail(f"rank {rank} says what makes no sense: {error}")
        finally:
            self._is_answered(rank)

    def _is_answered(self, rank: int) -> None:
        with self._answered:
            self._unanswered.discard(rank)
            self._answered.notify_all()

    def _call(self, rank: int, connection: Connection, form: str) -> None:
        announced = json.loads(form)
        if isinstance(announced, str):
            raise ExchangeFailed(announced)
        own = self._memory(rank, form, *announced)
        self._forms[rank] = form
        deadline_s = time.monotonic() + self._within_s
        with tracing.span("channel", names.RECEIVE, bytes=own.nbytes, rank=rank):
            size = connection.recv(own, deadline_s)
        if size != own.nbytes:
            raise ExchangeFailed(f"rank {rank} pushed {size} bytes, which is not what it has announced")
        try:
            self._gathering.meet(rank, self._check)
        except ExchangeFailed as error:
            _tell(connection, str(error))
            raise
        connection.send(b"", deadline_s + self._within_s)
        try:
            self._gathering.meet(rank, self._sum)
        except ExchangeFailed as error:
            with suppress(ChannelError):
                connection.send(FAILED, time.monotonic() + END_S)
            _tell(connection, str(error))
            raise
        total = self._totals[form]
        with tracing.span("channel", names.SEND, bytes=total.nbytes, rank=rank):
            connection.send_parts([OK, total], time.monotonic() + self._within_s)

    def _memory(self, rank: int, form: str, dtype: str, elements: int) -> NDArray[Any]:
        if (rank, form) not in self._pushed:
            self._pushed[rank, form] = np.empty(elements, dtype)
        return self._pushed[rank, form]

    def _check(self) -> None:
        """By the last one that has pushed."""
        for rank, form in self._forms.items():
            if form != self._forms[0]:
                raise ExchangeFailed(f"rank {rank} pushed other shapes than rank 0: it runs something else")

    def _sum(self) -> None:
        """By the last one that was told that all have pushed; the others wait, and nobody sends any more."""
        form = self._forms[0]
        first, *others = (self._pushed[rank, form] for rank in range(len(self._connections)))
        if form not in self._totals:
            self._totals[form] = np.empty_like(first)
        total = self._totals[form]
        with tracing.span("channel", names.SUM):
            np.copyto(total, first)
            for other in others:
                np.add(total, other, out=total)


def _tell(connection: Connection, reason: str) -> None:
    """The worker closes once it has heard it; before that, what was sent might be lost."""
    with suppress(ChannelError):
        connection.send(reason.encode()[:TEXT_BYTES], time.monotonic() + END_S)
        connection.recv(bytearray(TEXT_BYTES), time.monotonic() + END_S)


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
        server.append(Server(_welcome(channel, place), place.within_s))
        server[0].serve()
        told = channel.evidence()
        found = record(place.index, place.library, before, lanes=told.lanes, traffic=told, server=True)
        tracing.instant(names.TRANSPORT, **found)
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
