"""MPI point to point, by mpi4py: ranks of one job are each other's peers, and `connect by address` is by rank.

An address is `mpi:RANK:NUMBER`: who connects must be a rank of the same job, whose processes have begun MPI together
(`dlobd.network.channels.mpi_session`); a process that has not is a job of one rank, and reaches itself. A connection is
a pair of tags. MPI takes the caller's buffers as they are, also several at a time, by a datatype of their addresses.

What does not hold: MPI does not authenticate; that the other process has died is seen by the deadline only; and a
message that was not taken when its deadline passed, or its connection was closed, is MPI's until this process ends, and
so is its buffer.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from dlobd.network.channels.base import (
    Buffer,
    Capabilities,
    ChannelError,
    Closed,
    DeadlinePassed,
    Kind,
    MessageTooLong,
    PeerClosed,
    Traffic,
    view,
)
from dlobd.network.channels.mpi_session import SLEEP_S, TRANSPORTS, YIELD_S, MpiSession, environment
from dlobd.network.channels.two_sided import Counts, TwoSided, traffic

SCHEME = "mpi"

_TAGS = itertools.count(0, 2)
"""A connection's messages have an even tag of the process that receives them; the odd one after it says that its other
end is closed. A listener has a tag alike. MPI has at least 2^15, and MPICH 2^27 or more."""

_TAG = struct.Struct("<I")
_KINDS: dict[str, Kind] = {"tcp": "tcp", "ipoib": "ipoib", "rdma": "verbs", "shm": "shm"}


class MpiChannel:
    """See `dlobd.network.channels.base.Channel`.

    Args:
        transport, device: as of `dlobd.network.channels.mpi_session.environment`; those of the session where this
            process has one.
        secret: is not used: ranks have proved it when they met, and MPI has no place for it.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(iovec=True, one_sided=False, processes=True, hosts=True)
    transports: ClassVar[tuple[str, ...]] = TRANSPORTS

    def __init__(self, transport: str = "tcp", device: str = "", secret: bytes = b"") -> None:
        self._session = MpiSession.of_this_process(environment(transport, device))
        self._kind = _KINDS[transport]
        self._device = self._session.preset.get("UCX_NET_DEVICES", self._session.preset.get("FI_TCP_IFACE", ""))
        self._opened: list[MpiListener | MpiConnection] = []
        self._counts: list[Counts] = []
        self._closed = False

    def listen(self, device: str = "") -> MpiListener:
        """See the contract; the device is the session's."""
        listener = MpiListener(self._session, self._welcome)
        self._opened.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> MpiConnection:
        """See the contract. Where nobody listens, that is seen by the deadline only."""
        rank, number = _parsed(address, self._session.world.size)
        own, peer = next(_TAGS), bytearray(_TAG.size)
        wait = _Wait(self._session, deadline_s, lambda: self._closed, "this channel of MPI is closed")
        wait.complete(self._session.world.Isend(_TAG.pack(own), rank, number), f"rank {rank} did not answer")
        wait.probed(rank, own, f"nobody listens at {address}", self._session.mpi.Status())
        self._session.world.Recv(peer, rank, own)
        return self._welcome(rank, own, *_TAG.unpack(peer))

    def evidence(self) -> Traffic:
        """See the contract. The kind is that which MPI was told: it has no other to fall back to."""
        return traffic(self._counts)

    def close(self) -> None:
        """See the contract."""
        self._closed = True
        for opened in self._opened:
            opened.close()

    def _welcome(self, rank: int, own: int, peer: int) -> MpiConnection:
        # what a rank sends to itself is copied by MPI
        itself = rank == self._session.world.rank
        counts = Counts("local", "") if itself else Counts(self._kind, self._device)
        connection = MpiConnection(self._session, rank, own, peer, counts)
        self._counts.append(counts)
        self._opened.append(connection)
        return connection


class MpiListener:
    """See `dlobd.network.channels.base.Listener`. One thread accepts at a time."""

    def __init__(self, session: MpiSession, welcome: Callable[[int, int, int], MpiConnection]) -> None:
        self._session = session
        self._welcome = welcome
        self._number = next(_TAGS)
        self._closed = False
        self.address = f"{SCHEME}:{session.world.rank}:{self._number}"

    def accept(self, deadline_s: float) -> MpiConnection:
        """See the contract."""
        wait = _Wait(self._session, deadline_s, lambda: self._closed, f"{self.address} is closed")
        peer, status = bytearray(_TAG.size), self._session.mpi.Status()
        wait.probed(self._session.mpi.ANY_SOURCE, self._number, f"nobody came to {self.address}", status)
        self._session.world.Recv(peer, status.source, self._number)
        own = next(_TAGS)
        (theirs,) = _TAG.unpack(peer)
        answer = self._session.world.Isend(_TAG.pack(own), status.source, theirs)
        wait.complete(answer, f"rank {status.source} did not take an answer")
        return self._welcome(status.source, own, theirs)

    def close(self) -> None:
        """See the contract. Who has connected, and was never accepted, waits for its deadline."""
        self._closed = True


class MpiConnection(TwoSided):
    """See `dlobd.network.channels.base.Connection`.

    Args:
        rank: the other end's.
        own, theirs: the tags of what comes, and of what goes.
    """

    library = "mpi"

    def __init__(self, session: MpiSession, rank: int, own: int, theirs: int, counts: Counts) -> None:
        self.peer = f"rank {rank}"
        self._session = session
        self._rank = rank
        self._own = own
        self._theirs = theirs
        self._counts = counts
        self._closed = False
        self._peer_closed = False
        self._kept: list[Any] = []  # requests that were given up, and what they may still read or write

    def send(self, message: Buffer, deadline_s: float) -> None:
        """See the contract."""
        self.send_parts((message,), deadline_s)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """See the contract."""
        return self.recv_parts((into,), deadline_s)

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """See the contract."""
        self._check()
        views = [view(part) for part in parts]
        size = sum(part.nbytes for part in views)
        with _Memory(self._session.mpi, views, size) as memory:
            request = self._session.world.Isend(memory.described, self._rank, self._theirs)
            self._complete(request, views, deadline_s, "did not take a message")
        self._counts.sent_messages += 1
        self._counts.sent_bytes += size

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """See the contract."""
        mpi, views = self._session.mpi, [view(part) for part in parts]
        room = sum(part.nbytes for part in views)
        status = mpi.Status()
        self._wait(deadline_s).probed(self._rank, self._own, f"{self.peer} sent no message", status)
        size = int(status.Get_count(mpi.BYTE))
        if size > room:
            try:
                self._session.world.Recv([bytearray(), 0, mpi.BYTE], self._rank, self._own)  # it is cut to nothing
            except mpi.Exception:
                pass
            raise MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room}")
        with _Memory(mpi, views, size) as memory:
            request = self._session.world.Irecv(memory.described, self._rank, self._own)
            self._complete(request, views, deadline_s, "did not send the rest of a message")
        self._counts.received_messages += 1
        self._counts.received_bytes += size
        return size

    def close(self) -> None:
        """See the contract."""
        if self._closed:
            return
        self._closed = True
        notice = b""
        self._kept.append(
            (self._session.world.Isend([notice, 0, self._session.mpi.BYTE], self._rank, self._theirs + 1), notice)
        )

    def _complete(self, request: Any, views: list[memoryview], deadline_s: float, what: str) -> None:
        try:
            self._wait(deadline_s).complete(request, f"{self.peer} {what}")
        except ChannelError:
            self._kept.append((request, views))
            raise

    def _wait(self, deadline_s: float) -> _Wait:
        self._check(peer_too=False)
        return _Wait(
            self._session, deadline_s, lambda: self._closed, f"the connection to {self.peer} is closed", self._gone
        )

    def _gone(self) -> bool:
        """Whether the other end is closed."""
        if not self._peer_closed and self._session.world.Iprobe(self._rank, self._own + 1):
            self._peer_closed = True
        return self._peer_closed

    def _check(self, peer_too: bool = True) -> None:
        if self._closed:
            raise Closed(f"the connection to {self.peer} is closed")
        if peer_too and self._gone():
            raise PeerClosed(f"{self.peer} has closed the connection")


class _Memory:
    """Views as MPI takes them: one as it is, several by their addresses, so that they are not joined first."""

    def __init__(self, mpi: Any, views: list[memoryview], size: int) -> None:
        self._type: Any = None
        chosen, left = [], size
        for part in views:
            if left and part.nbytes:
                chosen.append(part[:left] if part.nbytes > left else part)
                left -= chosen[-1].nbytes
        if len(chosen) < 2:
            self.described = [chosen[0] if chosen else bytearray(), size, mpi.BYTE]
            return
        lengths, places = [part.nbytes for part in chosen], [mpi.Get_address(part) for part in chosen]
        self._type = mpi.BYTE.Create_hindexed(lengths, places).Commit()
        self.described = [mpi.BOTTOM, 1, self._type]

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *error: object) -> None:
        if self._type is not None:
            self._type.Free()  # what is under way keeps it


class _Wait:
    """Until something has happened; until the deadline, or one end is closed."""

    def __init__(
        self,
        session: MpiSession,
        deadline_s: float,
        closed: Callable[[], bool],
        why: str,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._session = session
        self._deadline_s = deadline_s
        self._closed = closed
        self._why = why
        self._gone = gone

    def complete(self, request: Any, what: str) -> None:
        """A request."""
        self._until(request.Test, what)

    def probed(self, source: int, tag: int, what: str, status: Any) -> None:
        """A message, which one thread alone may receive; the status says from whom and how long it is."""
        self._until(lambda: self._session.world.Iprobe(source, tag, status), what)

    def _until(self, found: Callable[[], bool], what: str) -> None:
        yields_until_s = time.monotonic() + YIELD_S
        try:
            while not found():
                if self._closed():
                    raise Closed(self._why)
                if self._gone():
                    if found():  # it came before its sender closed
                        return
                    raise PeerClosed(f"{what}: it has closed the connection")
                now_s = time.monotonic()
                if now_s > self._deadline_s:
                    raise DeadlinePassed(f"{what} in time")
                if now_s < yields_until_s:
                    os.sched_yield()
                else:
                    time.sleep(SLEEP_S)
        except self._session.mpi.Exception as error:
            raise ChannelError(f"{what}: {error}") from error


def _parsed(address: str, size: int) -> tuple[int, int]:
    """Rank and number of an address."""
    words = address.split(":")
    if len(words) != 3 or words[0] != SCHEME or not (words[1] + words[2]).isdecimal() or int(words[1]) >= size:
        raise ValueError(f"{address!r} is no address of library mpi among {size} ranks, which are mpi:RANK:NUMBER")
    return int(words[1]), int(words[2])
