"""One end of a connection over TCP. A message is its length, 8 bytes in little-endian order, and then its bytes.

The length goes in the same `sendmsg` as the message, gathered from the caller's buffers; what comes is scattered into
the caller's by `recvmsg_into`. Of a message up to STAGE_BYTES pass through a buffer of the connection, so that a short
one costs one call of the kernel; Python copies these, and nothing else. Nothing is allocated by the message's size.

A call waits inside the kernel (SO_RCVTIMEO, MSG_WAITALL), so that a long message is one call, not one for each chunk
that arrives; near its deadline it does not block but polls. Before it waits for a message it looks SPINS times. While a
message is on its way out (`dlobd.network.channels.socket_writer`) it waits for both directions.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence

from dlobd.network.channels.base import Buffer, ChannelError, Closed, DeadlinePassed, MessageTooLong, PeerClosed, view
from dlobd.network.channels.socket_writer import LENGTH, MAX_PARTS, TICK_S, Begun, SocketWriter, wait
from dlobd.network.channels.two_sided import Counts, TwoSided

STAGE_BYTES = 8192
"""A copy of so much costs less than the call of the kernel that it saves."""

SPINS = 20
"""Looks for a message before its receiver sleeps: some 20 microseconds, about what it takes to be woken. Each look
that finds nothing gives the core away (sched_yield), so that ranks that share one do not stall each other."""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 10, 5, 4
"""A host that has vanished is noticed after 30 s by whoever waits for it with nothing under way. Who has sent to it
waits for its deadline: TCP_USER_TIMEOUT would also end connections whose receiver is only slow (tcp(7))."""

NEAR_US, NEAR_SEND_BYTES = 33, 100_000
"""A peer at a shorter round trip than this is in another namespace of this machine, or next to it. The kernel would let
megabytes lie between the two ends, which then no longer fit into the cache: an all-reduce over such a link takes twice
as long. So many bytes a round trip are 3 GB/s, more than one thread copies; a farther peer needs more on the way, which
the kernel finds out. Over loopback nothing is gained by it (docs/channel-bench.md)."""

_MIN_RTT = struct.Struct("I")
_MIN_RTT_AT = 148
"""tcpi_min_rtt in struct tcp_info of linux/tcp.h, microseconds; since Linux 4.6."""

_TIMEVAL = struct.Struct("ll")


class SocketsConnection(TwoSided):
    """See `dlobd.network.channels.base.Connection`.

    Args:
        connected: a socket that is connected and authenticated; it is this connection's to close.
    """

    library = "sockets"

    def __init__(self, connected: socket.socket, peer: str, counts: Counts) -> None:
        self.peer = peer
        self._socket = connected
        self._counts = counts
        self._writer = SocketWriter(connected, peer, self._lost, self._end_with)
        self._receiving = threading.Lock()
        self._ended = ""  # why this end is closed
        self._stage = memoryview(bytearray(STAGE_BYTES))
        self._start = self._end = 0  # what of the stage has come and was not yet taken
        self._left = 0  # bytes of the message under way that were not yet taken
        self._readable, self._either = select.poll(), select.poll()
        self._readable.register(connected, select.POLLIN)
        self._either.register(connected, select.POLLIN | select.POLLOUT)
        _set_up(connected)

    def send(self, message: Buffer, deadline_s: float) -> None:
        """See the contract. A message that was sent in part when its deadline passed ends the connection."""
        self.send_parts((message,), deadline_s)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """See the contract. What of a message has not come by its deadline is skipped by the next call."""
        return self.recv_parts((into,), deadline_s)

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """See the contract."""
        views = [seen for part in parts if (seen := view(part)).nbytes]
        size = sum(part.nbytes for part in views)
        self._writer.send(views, size, deadline_s)
        self._counts.sent_messages += 1
        self._counts.sent_bytes += size

    def begin_send(self, message: Buffer) -> Begun | None:
        """See the contract. What the kernel takes without waiting goes at once, unless something goes before it."""
        seen = view(message)
        begun = self._writer.begin(seen)
        self._counts.sent_messages += 1
        self._counts.sent_bytes += seen.nbytes
        return begun

    def finish_send(self, begun: Begun, deadline_s: float) -> None:
        """See the contract. The connection ends if the deadline passes."""
        self._writer.finish(begun, deadline_s)

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """See the contract."""
        views = [seen for part in parts if (seen := view(part)).nbytes]
        room = sum(part.nbytes for part in views)
        with self._receiving:
            self._skip(deadline_s)
            size = self._next_length(deadline_s)
            if size > room:
                try:
                    self._skip(deadline_s)
                except DeadlinePassed:
                    pass  # the next call skips the rest
                raise MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room}")
            self._fill(_first_bytes(views, size), deadline_s)
            self._counts.received_messages += 1
            self._counts.received_bytes += size
        return size

    def close(self) -> None:
        """See the contract. What was sent before is still delivered."""
        self._end_with(f"the connection to {self.peer} is closed")
        with self._writer.lock, self._receiving:  # nobody is inside a call with a descriptor that may be another's soon
            self._socket.close()

    def detach(self) -> socket.socket:
        """The socket, for what is spoken on it from now on; this connection is closed. It blocks without a limit.

        What has come after the last message that was received is lost: the peer must be waiting for this end to speak.

        Raises:
            Closed: it was closed before.
        """
        with self._writer.lock, self._receiving:
            if self._socket.fileno() < 0:
                raise Closed(self._ended)
            self._ended = self._ended or f"the connection to {self.peer} is handed on"
            taken = socket.socket(fileno=self._socket.detach())
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            taken.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(0, 0))
        return taken

    def _end_with(self, why: str) -> None:
        self._ended = self._ended or why
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in the kernel, at both ends
        except OSError:
            pass  # it is closed already, or its peer was quicker

    def _next_length(self, deadline_s: float) -> int:
        """Of the message that is next; it is under way from here on."""
        while self._end - self._start < LENGTH.size:
            if self._start == self._end:
                self._start = self._end = 0
            elif STAGE_BYTES - self._start < LENGTH.size:
                count = self._end - self._start
                self._stage[:count] = bytes(self._stage[self._start : self._end])
                self._start, self._end = 0, count
            self._end += self._some([self._stage[self._end :]], 0, deadline_s, SPINS)
        (size,) = LENGTH.unpack_from(self._stage, self._start)
        self._start += LENGTH.size
        self._left = int(size)
        return self._left

    def _fill(self, views: list[memoryview], deadline_s: float) -> None:
        """The message under way into views of its length, which this may change: first what is staged."""
        first = 0
        while self._left:
            if self._start < self._end:
                got = min(self._end - self._start, views[first].nbytes)
                views[first][:got] = self._stage[self._start : self._start + got]
                self._start += got
            else:
                got = self._some(views[first : first + MAX_PARTS], socket.MSG_WAITALL, deadline_s)
            self._left -= got
            while got:
                taken = min(got, views[first].nbytes)
                got -= taken
                if taken == views[first].nbytes:
                    first += 1
                else:
                    views[first] = views[first][taken:]

    def _skip(self, deadline_s: float) -> None:
        """What is left of a message that was refused, or whose deadline has passed."""
        while self._left:
            if self._start == self._end:
                self._start, self._end = 0, self._some([self._stage], 0, deadline_s)
            gone = min(self._left, self._end - self._start)
            self._start += gone
            self._left -= gone

    def _some(self, views: list[memoryview], flags: int, deadline_s: float, spins: int = 0) -> int:
        """Receives at least one byte into the views, none of which is empty."""
        while True:
            if self._writer.pending:
                self._writer.push()
            near = deadline_s - time.monotonic() < TICK_S
            both = bool(self._writer.pending)
            try:
                asked = flags | socket.MSG_DONTWAIT if near or both or spins > 0 else flags
                if len(views) == 1:
                    got = self._socket.recv_into(views[0], 0, asked)
                else:
                    got = self._socket.recvmsg_into(views, 0, asked)[0]
            except BlockingIOError:
                if spins:
                    spins -= 1
                    os.sched_yield()
                else:
                    ready = self._either if both else self._readable
                    wait(ready, near or both, deadline_s, f"{self.peer} sent no message in time")
                continue
            except OSError as error:
                raise self._lost(error) from error
            if not got:
                raise self._lost()
            return got

    def _lost(self, error: OSError | None = None) -> ChannelError:
        """What to raise when the socket carries nothing more."""
        if self._ended:
            return Closed(self._ended)
        if error is not None:
            return PeerClosed(f"{self.peer} is gone: {error.strerror}")
        if self._left or self._start < self._end:
            return PeerClosed(f"{self.peer} closed the connection in the middle of a message")
        return PeerClosed(f"{self.peer} has closed the connection")


def _set_up(connected: socket.socket) -> None:
    """The kernel's buffers stay as they are, and tune themselves, unless the peer is near."""
    if _is_near(connected):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_SEND_BYTES)
    connected.settimeout(None)
    tick = _TIMEVAL.pack(int(TICK_S), int(TICK_S % 1 * 1e6))
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
        (socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick),
        (socket.SOL_SOCKET, socket.SO_SNDTIMEO, tick),
    ):
        connected.setsockopt(level, option, value)


def _is_near(connected: socket.socket) -> bool:
    if connected.getsockname()[0] == connected.getpeername()[0]:
        return False  # over loopback
    info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT_AT + _MIN_RTT.size)
    return len(info) > _MIN_RTT_AT and _MIN_RTT.unpack_from(info, _MIN_RTT_AT)[0] < NEAR_US


def _first_bytes(views: list[memoryview], size: int) -> list[memoryview]:
    """As much of the views as a message of `size` fills."""
    chosen = []
    for part in views:
        if not size:
            break
        chosen.append(part[:size] if part.nbytes > size else part)
        size -= chosen[-1].nbytes
    return chosen
