"""The connections of one rank to the peers that its collectives talk to, and its sends beside its receives.

A channel may keep a `send` until its peer receives. Where all ranks send and receive at once, as in a ring, each needs
a second thread for that not to be a deadlock; a mesh has one, for as long as it lives, that sends what it is handed in
the order in which it was handed over. Where the library can begin a send, that thread is not needed for messages whose
bytes it has taken by then, as of small ones, nor for those to the peer that this rank receives from meanwhile, if the
library moves them on.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from queue import SimpleQueue
from typing import Any

from dlobd.network.channels.base import (
    Buffer,
    Capabilities,
    Channel,
    ChannelError,
    Closed,
    Connection,
    DeadlinePassed,
    view,
)

AllGather = Callable[[str, str], list[str]]
"""From a name and this rank's value to the values that all ranks gave under that name, in the order of their ranks."""

_RANK = struct.Struct("<I")

END_S = 5.0
"""How long `close` waits for its thread, whose connections are closed by then."""


class ExchangeFailed(Exception):
    """A collective cannot go on: the message is one line and names the peer."""


class Mesh:
    """Of one rank. One thread uses it at a time, and any may close it.

    Args:
        peers: rank to the connection to it.
        address: where this rank has listened.
        capabilities: of the connections' library.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        peers: Mapping[int, Connection],
        address: str = "",
        capabilities: Capabilities | None = None,
    ) -> None:
        self.rank = rank
        self._begins = capabilities is not None and capabilities.begins
        self._moves = capabilities is not None and capabilities.moves
        self._begun: list[_Order] = []  # whose end this thread awaits in `drain`
        self.address = address
        self.size = size
        self._peers = dict(peers)
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._sent: SimpleQueue[Exception | None] = SimpleQueue()
        self._under_way = 0
        self._carried: Counter[tuple[int, int]] = Counter()
        self._thread = threading.Thread(target=self._send_all, name=f"dlobd-mesh-{rank}", daemon=True)
        self._thread.start()

    @classmethod
    def join(
        cls,
        rank: int,
        size: int,
        partners: Collection[int],
        channel: Channel,
        all_gather: AllGather,
        deadline_s: float,
        device: str = "",
    ) -> Mesh:
        """Meets the partners, who must have this rank among theirs. All ranks call it.

        Args:
            device: to listen on; see `Channel.listen`.
            deadline_s: of the whole, a time of time.monotonic().

        Raises:
            ExchangeFailed: a partner did not come in time, or is not the one that it says.
        """
        listener = channel.listen(device)
        try:
            addresses = all_gather("listeners", listener.address)
            peers: dict[int, Connection] = {}
            # the lower rank connects: rank 0 first waits for nobody, and no circle of waits can close
            below = {peer for peer in partners if peer < rank}
            while below:
                connection = listener.accept(deadline_s)
                came = _heard(connection, deadline_s)
                if came not in below:
                    raise ExchangeFailed(f"{connection.peer} says that it is rank {came}, which is not awaited")
                below.remove(came)
                peers[came] = connection
            for peer in sorted(peer for peer in partners if peer > rank):
                peers[peer] = channel.connect(addresses[peer], deadline_s)
                peers[peer].send(_RANK.pack(rank), deadline_s)
        except DeadlinePassed as error:
            late = sorted(set(partners) - set(peers))
            raise ExchangeFailed(f"rank {', '.join(map(str, late))} did not come to rank {rank} in time") from error
        except ChannelError as error:
            raise ExchangeFailed(f"rank {rank} cannot meet its partners: {error}") from error
        finally:
            listener.close()
        return cls(rank, size, peers, listener.address, channel.capabilities)

    def post(self, to: int, message: Buffer, deadline_s: float) -> None:
        """Sends beside what this thread does next; the message must stay as it is until `drain` has returned."""
        self._carried[self.rank, to] += view(message).nbytes
        begun = None
        if self._begins:
            try:
                if (begun := self._peers[to].begin_send(message)) is None:
                    return
            except ChannelError as error:
                raise _failure(to, error) from error
        order = _Order(to, message, begun, deadline_s)
        if begun is not None and self._moves:
            self._begun.append(order)
        else:
            self._hand_over(order)

    def _hand_over(self, order: _Order) -> None:
        self._under_way += 1
        self._orders.put(order)

    def carried(self) -> list[tuple[int, int, int]]:
        """(source, destination, bytes) of what was posted and received since it was last asked, in that order."""
        found = [(*ends, size) for ends, size in sorted(self._carried.items()) if size]
        self._carried.clear()
        return found

    def drain(self) -> None:
        """Returns once all that was posted is sent. Raises ExchangeFailed."""
        begun, self._begun = self._begun, []
        for order in begun:
            if self._under_way:  # the other thread's may only end once these do
                self._hand_over(order)
            else:
                self._finish(order)
        while self._under_way:
            error = self._sent.get()
            self._under_way -= 1
            if error is not None:
                raise error

    def send(self, to: int, message: Buffer, deadline_s: float) -> None:
        """Sends at once. Raises ExchangeFailed."""
        try:
            self._peers[to].send(message, deadline_s)
        except ChannelError as error:
            raise _failure(to, error) from error

    def recv(self, sender: int, into: Buffer, deadline_s: float) -> None:
        """Receives a message of exactly the length of `into`. Raises ExchangeFailed."""
        if self._begun:  # receiving moves on what goes to the same peer, and nothing else
            for order in self._begun:
                if order.to != sender:
                    self._hand_over(order)
            self._begun = [order for order in self._begun if order.to == sender]
        try:
            size = self._peers[sender].recv(into, deadline_s)
        except ChannelError as error:
            raise _failure(sender, error) from error
        if size != (expected := view(into).nbytes):
            raise ExchangeFailed(f"rank {sender} sent {size} bytes instead of {expected}: it runs something else")
        self._carried[sender, self.rank] += size

    def _finish(self, order: _Order) -> None:
        try:
            self._peers[order.to].finish_send(order.begun, order.deadline_s)
        except ChannelError as error:
            raise _failure(order.to, error) from error

    def close(self) -> None:
        """Ends the thread and closes all connections, which wakes whoever waits for this rank. May be called twice."""
        for connection in self._peers.values():
            connection.close()
        self._orders.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(END_S)

    def _send_all(self) -> None:
        failed: ExchangeFailed | None = None
        while (order := self._orders.get()) is not None:
            try:
                if failed is None and order.begun is None:
                    self.send(order.to, order.message, order.deadline_s)
                elif order.begun is not None:
                    self._finish(order)
            except ExchangeFailed as error:
                failed = error  # what comes after it would arrive as something else
            self._sent.put(failed)


class _Order:
    """One message to be sent, or whose sending has begun."""

    __slots__ = ("begun", "deadline_s", "message", "to")

    def __init__(self, to: int, message: Buffer, begun: Any, deadline_s: float) -> None:
        self.to = to
        self.message = message
        self.begun = begun
        self.deadline_s = deadline_s


def _heard(connection: Connection, deadline_s: float) -> int:
    """The rank at the other end, as it says."""
    said = bytearray(_RANK.size)
    connection.recv(said, deadline_s)
    (rank,) = _RANK.unpack(said)
    return int(rank)


def _failure(peer: int, error: ChannelError) -> ExchangeFailed:
    if isinstance(error, DeadlinePassed):
        return ExchangeFailed(f"rank {peer} did not answer in time ({error})")
    if isinstance(error, Closed):
        return ExchangeFailed(f"this rank has left: {error}")
    return ExchangeFailed(f"rank {peer} is gone ({error})")
