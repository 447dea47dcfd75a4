"""A rank's connections for collectives in which all ranks send and receive at the same time, and a barrier.

A channel may block a `send` until its peer receives. If all ranks send and receive at the same time, as in a ring,
each rank needs a second thread to avoid a deadlock: the mesh's thread sends the queued messages in order. If a library
can start a send without waiting, the thread is needed only for messages that the library does not take at once, while
this rank receives from another peer.
"""

import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from dlobd.network.channels import base

AllGather = Callable[[str, str], list[str]]
"""Function that publishes this rank's value under a name, and returns all ranks' values for it, by rank."""

RANK = struct.Struct("<I")  # the first message of the connecting rank
END_S = 5.0  # timeout of `close` for the sending thread; its connections are closed by then


class ExchangeFailed(Exception):
    """Error of a collective that cannot continue. The message is one line that names the peer."""


class Mesh:
    """Connections of one rank. One thread uses it at a time; any thread may close it."""

    def __init__(self, rank: int, size: int, peers: Mapping[int, base.Connection], address: str, begins: bool) -> None:
        self.rank = rank
        self.size = size
        self.address = address  # addresses at which this rank has listened
        self._begins = begins  # the library can start a send without waiting
        self._begun: list[_Send] = []  # started sends that this thread finishes in `drain`
        self._peers = dict(peers)
        self._queue: SimpleQueue[_Send | None] = SimpleQueue()
        self._results: SimpleQueue[ExchangeFailed | None] = SimpleQueue()
        self._queued = 0
        self._carried: Counter[tuple[int, int]] = Counter()
        self._thread = threading.Thread(target=self._send_all, name=f"dlobd-mesh-{rank}", daemon=True)
        self._thread.start()

    @classmethod
    def join(
        cls,
        rank: int,
        size: int,
        partners: Collection[int],
        channel: base.OpenChannel,
        all_gather: AllGather,
        deadline_s: float,
    ) -> "Mesh":
        """Connect to the partners of this rank. All ranks call it, and partnership is symmetric.

        Raises ExchangeFailed: a partner did not connect in time, or a rank that is no partner connected.
        """
        listener = channel.listen()
        try:
            addresses = all_gather("listeners", listener.address)
            peers: dict[int, base.Connection] = {}
            # the lower rank connects: rank 0 accepts from no rank, so waits cannot form a cycle
            accept_ranks(listener, {peer for peer in partners if peer < rank}, peers, deadline_s)
            for peer in sorted(peer for peer in partners if peer > rank):
                peers[peer] = channel.connect(addresses[peer], deadline_s)
                peers[peer].send(RANK.pack(rank), deadline_s)
        except base.DeadlinePassed as error:
            late = ", ".join(map(str, sorted(set(partners) - set(peers))))
            raise ExchangeFailed(f"rank {late} did not connect to rank {rank} in time") from error
        except base.ChannelError as error:
            raise ExchangeFailed(f"rank {rank} cannot connect to its partners: {error}") from error
        finally:
            listener.close()
        return cls(rank, size, peers, listener.address, channel.capabilities.begins)

    def post(self, to: int, message: base.Buffer, deadline_s: float) -> None:
        """Send without waiting; the message must not change before `drain` has returned. Raises ExchangeFailed."""
        self._carried[self.rank, to] += base.view(message).nbytes
        if not self._begins:
            self._enqueue(_Send(to, message, None, deadline_s))
            return
        try:
            begun = self._peers[to].begin_send(message)
        except base.ChannelError as error:
            raise _failure(to, error) from error
        if begun is not None:
            self._begun.append(_Send(to, message, begun, deadline_s))

    def drain(self) -> None:
        """Wait until all posted messages are sent. Raises ExchangeFailed."""
        begun, self._begun = self._begun, []
        for send in begun:
            if self._queued:  # the queued sends may complete only after these sends
                self._enqueue(send)
            else:
                self._finish(send)
        while self._queued:
            error = self._results.get()
            self._queued -= 1
            if error is not None:
                raise error

    def send(self, to: int, message: base.Buffer, deadline_s: float) -> None:
        try:
            self._peers[to].send(message, deadline_s)
        except base.ChannelError as error:
            raise _failure(to, error) from error

    def recv(self, sender: int, into: base.Buffer, deadline_s: float) -> None:
        """Receive a message of exactly the length of `into`. Raises ExchangeFailed."""
        if self._begun:  # receiving makes progress only on sends to the same peer
            for send in self._begun:
                if send.to != sender:
                    self._enqueue(send)
            self._begun = [send for send in self._begun if send.to == sender]
        try:
            size = self._peers[sender].recv(into, deadline_s)
        except base.ChannelError as error:
            raise _failure(sender, error) from error
        if size != (expected := base.view(into).nbytes):
            raise ExchangeFailed(f"rank {sender} sent {size} bytes, expected {expected}: the programs differ")
        self._carried[sender, self.rank] += size

    def carried(self) -> list[tuple[int, int, int]]:
        """Return (source, destination, bytes) of all transfers since the last call, sorted."""
        transfers = [(*ends, size) for ends, size in sorted(self._carried.items()) if size]
        self._carried.clear()
        return transfers

    def close(self) -> None:
        """Close all connections, so that peers and this rank's other thread stop waiting. May be called twice."""
        for connection in self._peers.values():
            connection.close()
        self._queue.put(None)
        self._thread.join(END_S)

    def _enqueue(self, send: "_Send") -> None:
        self._queued += 1
        self._queue.put(send)

    def _finish(self, send: "_Send") -> None:
        try:
            self._peers[send.to].finish_send(send.begun, send.deadline_s)
        except base.ChannelError as error:
            raise _failure(send.to, error) from error

    def _send_all(self) -> None:
        failed: ExchangeFailed | None = None
        while (send := self._queue.get()) is not None:
            try:
                if failed is None and send.begun is None:
                    self.send(send.to, send.message, send.deadline_s)
                elif send.begun is not None:
                    self._finish(send)
            except ExchangeFailed as error:
                failed = error  # the peer would mistake a later message for the failed message
            self._results.put(failed)


@dataclass(frozen=True, slots=True)
class _Send:
    """Message in the queue. `begun` is the library's handle of a started send."""

    to: int
    message: base.Buffer
    begun: Any
    deadline_s: float


def barrier(mesh: Mesh, deadline_s: float) -> None:
    """Wait until all ranks have called it. Raises ExchangeFailed: a peer is gone or late.

    This is the dissemination barrier (Hensgen, Finkel and Manber 1988): in each of ceil(log2(size)) rounds a rank sends
    a token to one rank and receives a token from another rank.
    """
    token = bytearray(1)
    distance = 1
    while distance < mesh.size:
        mesh.post((mesh.rank + distance) % mesh.size, b"\0", deadline_s)
        mesh.recv((mesh.rank - distance) % mesh.size, token, deadline_s)
        distance *= 2
    mesh.drain()


def barrier_partners(rank: int, size: int) -> set[int]:
    """Return the ranks that `rank` exchanges tokens with in a barrier."""
    distances = [1 << bit for bit in range((size - 1).bit_length())]
    return {(rank + d) % size for d in distances} | {(rank - d) % size for d in distances}


def accept_ranks(
    listener: base.Listener, expected: Collection[int], connections: dict[int, base.Connection], deadline_s: float
) -> None:
    """Accept a connection from each expected rank, and add it to `connections`.

    Raises ChannelError; ExchangeFailed if another rank connects.
    """
    while len(connections) < len(expected):
        connection = listener.accept(deadline_s)
        memory = bytearray(RANK.size)
        connection.recv(memory, deadline_s)
        (rank,) = RANK.unpack(memory)
        if rank in connections or rank not in expected:
            raise ExchangeFailed(f"{connection.peer} connected as rank {rank}, which is not expected")
        connections[rank] = connection


def _failure(peer: int, error: base.ChannelError) -> ExchangeFailed:
    if isinstance(error, base.DeadlinePassed):
        return ExchangeFailed(f"rank {peer} did not answer in time ({error})")
    if isinstance(error, base.Closed):
        return ExchangeFailed(f"this rank has closed its connections: {error}")
    return ExchangeFailed(f"rank {peer} is gone ({error})")
