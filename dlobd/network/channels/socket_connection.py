"""One end of a connection over TCP. A message is its length, 8 bytes in little-endian order, and then its bytes.

The length goes in the same `sendmsg` as the message, gathered from the caller's buffers; what comes is scattered into
the caller's by `recvmsg_into`. Of a message up to STAGE_BYTES pass through a buffer of the connection, so that a short
one costs one call of the kernel; Python copies these, and nothing else. Nothing is allocated by the message's size.

A call waits inside the kernel (SO_RCVTIMEO, MSG_WAITALL), so that a long message is one call, not one for each chunk
that arrives; near its deadline it does not block but polls. Before it waits for a message it looks SPINS times.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

from dlobd.network.channels.base import Buffer, ChannelError, Closed, DeadlinePassed, MessageTooLong, PeerClosed, view
from dlobd.network.channels.two_sided import Counts, TwoSided

STAGE_BYTES = 8192
"""A copy of so much costs less than the call of the kernel that it saves."""

SPINS = 20
"""Looks for a message before its receiver sleeps: some 20 microseconds, about what it takes to be woken. Each look
that finds nothing gives the core away (sched_yield), so that ranks that share one do not stall each other."""

TICK_S = 0.2
"""The longest that a call blocks in the kernel before it looks at its deadline; nearer than that it polls."""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 10, 5, 4
"""A host that has vanished is noticed after 30 s by whoever waits for it with nothing under way. Who has sent to it
waits for its deadline: TCP_USER_TIMEOUT would also end connections whose receiver is only slow (tcp(7))."""

_LENGTH = struct.Struct("<Q")
_TIMEVAL = struct.Struct("ll")
_MAX_PARTS = 1024  # UIO_MAXIOV of Linux


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
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._ended = ""  # why this end is closed
        self._header = memoryview(bytearray(_LENGTH.size))
        self._stage = memoryview(bytearray(STAGE_BYTES))
        self._start = self._end = 0  # what of the stage has come and was not yet taken
        self._left = 0  # bytes of the message under way that were not yet taken
        self._begun = self._finished = 0  # sends; each is counted by the one thread that does it
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(connected, select.POLLIN)
        self._writable.register(connected, select.POLLOUT)
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
        with self._sending:
            _LENGTH.pack_into(self._header, 0, size)
            self._write([self._header, *views], _LENGTH.size + size, deadline_s)
            self._counts.sent_messages += 1
            self._counts.sent_bytes += size

    def begin_send(self, message: Buffer) -> Any:
        """See the contract. What the kernel takes without waiting goes at once, unless something goes before it."""
        seen = view(message)
        header = memoryview(_LENGTH.pack(seen.nbytes))
        views, size, sent = [header, seen] if seen.nbytes else [header], _LENGTH.size + seen.nbytes, 0
        if self._begun == self._finished and self._sending.acquire(blocking=False):
            try:
                sent = self._socket.sendmsg(views, (), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            except OSError as error:
                raise self._lost(error) from error
            finally:
                self._sending.release()
        self._counts.sent_messages += 1
        self._counts.sent_bytes += seen.nbytes
        if sent == size:
            return None
        self._begun += 1
        return _after(views, sent), size - sent

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """See the contract. The connection ends if the deadline passes."""
        rest, size = begun
        with self._sending:
            self._write(rest, size, deadline_s, begun=True)
        self._finished += 1

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
        with self._sending, self._receiving:  # nobody is inside a call with a descriptor that may be another's soon
            self._socket.close()

    def detach(self) -> socket.socket:
        """The socket, for what is spoken on it from now on; this connection is closed. It blocks without a limit.

        What has come after the last message that was received is lost: the peer must be waiting for this end to speak.

        Raises:
            Closed: it was closed before.
        """
        with self._sending, self._receiving:
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

    def _write(self, views: list[memoryview], size: int, deadline_s: float, begun: bool = False) -> None:
        """All of the views, which this may change. A message that has `begun` cannot be taken back."""
        first = done = 0
        try:
            while True:
                near = deadline_s - time.monotonic() < TICK_S
                flags = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT if near else socket.MSG_NOSIGNAL
                try:
                    sent = self._socket.sendmsg(views[first : first + _MAX_PARTS], (), flags)
                except BlockingIOError:
                    self._wait(self._writable, near, deadline_s, "did not take a message")
                    continue
                done += sent
                if done == size:
                    return
                while sent:
                    gone = min(sent, views[first].nbytes)
                    sent -= gone
                    if gone == views[first].nbytes:
                        first += 1
                    else:
                        views[first] = views[first][gone:]
        except OSError as error:
            raise self._lost(error) from error
        except BaseException as error:
            if done or begun or not isinstance(error, DeadlinePassed):
                self._end_with(
                    f"a message to {self.peer} was cut: {error}"
                )  # the peer cannot know where the next begins
            raise

    def _next_length(self, deadline_s: float) -> int:
        """Of the message that is next; it is under way from here on."""
        while self._end - self._start < _LENGTH.size:
            if self._start == self._end:
                self._start = self._end = 0
            elif STAGE_BYTES - self._start < _LENGTH.size:
                count = self._end - self._start
                self._stage[:count] = bytes(self._stage[self._start : self._end])
                self._start, self._end = 0, count
            self._end += self._some([self._stage[self._end :]], 0, deadline_s, SPINS)
        (size,) = _LENGTH.unpack_from(self._stage, self._start)
        self._start += _LENGTH.size
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
                got = self._some(views[first : first + _MAX_PARTS], socket.MSG_WAITALL, deadline_s)
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
            near = deadline_s - time.monotonic() < TICK_S
            at_once = near or spins > 0
            try:
                asked = flags | socket.MSG_DONTWAIT if at_once else flags
                if len(views) == 1:
                    got = self._socket.recv_into(views[0], 0, asked)
                else:
                    got = self._socket.recvmsg_into(views, 0, asked)[0]
            except BlockingIOError:
                if spins:
                    spins -= 1
                    os.sched_yield()
                else:
                    self._wait(self._readable, near, deadline_s, "sent no message")
                continue
            except OSError as error:
                raise self._lost(error) from error
            if not got:
                raise self._lost()
            return got

    def _wait(self, ready: select.poll, near: bool, deadline_s: float, what: str) -> None:
        """After a call that would block, which has waited for TICK_S unless its deadline was `near`."""
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise DeadlinePassed(f"{self.peer} {what} in time")
        if near:
            ready.poll(left_s * 1000)

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
    """The kernel's buffers stay as they are: it tunes them itself unless they are set."""
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


def _after(views: list[memoryview], sent: int) -> list[memoryview]:
    """What of the views comes after so many bytes."""
    rest = []
    for part in views:
        if sent < part.nbytes:
            rest.append(part[sent:])
        sent = max(0, sent - part.nbytes)
    return rest


def _first_bytes(views: list[memoryview], size: int) -> list[memoryview]:
    """As much of the views as a message of `size` fills."""
    chosen = []
    for part in views:
        if not size:
            break
        chosen.append(part[:size] if part.nbytes > size else part)
        size -= chosen[-1].nbytes
    return chosen
