"""What one end of a TCP connection sends: whole messages, at once or begun now and finished later.

Of a message that was begun the kernel takes what it can without waiting. The rest goes when its end is awaited, or
while the same end receives, which calls `push` between: so two ends that send to each other need no second thread.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

from dlobd.network.channels.base import ChannelError, DeadlinePassed

LENGTH = struct.Struct("<Q")
"""What a message begins with: its bytes, without these."""

MAX_PARTS = 1024
"""UIO_MAXIOV of Linux."""

TICK_S = 0.2
"""The longest that a call blocks in the kernel before it looks at its deadline; nearer than that it polls."""

_AT_ONCE = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT


class Begun:
    """A message of which `size` bytes, those of `rest`, were not yet taken."""

    __slots__ = ("rest", "size")

    def __init__(self, rest: list[memoryview], size: int) -> None:
        self.rest = rest
        self.size = size

    def taken(self, count: int) -> None:
        """By the kernel: so many bytes more."""
        self.size -= count
        first = 0
        while count:
            gone = min(count, self.rest[first].nbytes)
            count -= gone
            if gone == self.rest[first].nbytes:
                first += 1
            else:
                self.rest[first] = self.rest[first][gone:]
        del self.rest[:first]


class SocketWriter:
    """Of one connected socket; several threads may call it.

    Attributes:
        pending: messages that were begun and are not all sent, in their order. One thread begins them.
        lock: held while something is sent, and by whoever takes from `pending`.

    Args:
        lost: what to raise for an error of the socket.
        end: ends the connection, with why.
    """

    def __init__(
        self, connected: socket.socket, peer: str, lost: Callable[[OSError], ChannelError], end: Callable[[str], None]
    ) -> None:
        self.lock = threading.Lock()
        self.pending: deque[Begun] = deque()
        self._socket = connected
        self._peer = peer
        self._lost = lost
        self._end = end
        self._header = memoryview(bytearray(LENGTH.size))
        self._writable = select.poll()
        self._writable.register(connected, select.POLLOUT)

    def send(self, views: list[memoryview], size: int, deadline_s: float) -> None:
        """A message of these views, behind all that was begun before. Raises as `Connection.send`."""
        with self.lock:
            while self.pending:
                self._write_first(deadline_s)
            LENGTH.pack_into(self._header, 0, size)
            self._write(Begun([self._header, *views], LENGTH.size + size), deadline_s)

    def begin(self, message: memoryview) -> Begun | None:
        """None where the kernel has taken all of it."""
        header = memoryview(LENGTH.pack(message.nbytes))
        begun = Begun([header, message] if message.nbytes else [header], LENGTH.size + message.nbytes)
        if not self.lock.acquire(blocking=False):
            self.pending.append(begun)  # behind what another thread sends, which may wait for the peer
            return begun
        try:
            if not self.pending:
                self._go_on(begun)
            if not begun.size:
                return None
            self.pending.append(begun)
        finally:
            self.lock.release()
        return begun

    def finish(self, begun: Begun, deadline_s: float) -> None:
        """Returns once it is sent, and all before it. The connection ends if the deadline passes."""
        with self.lock:
            while begun.size:
                self._write_first(deadline_s)

    def push(self) -> None:
        """As much of what is pending as the kernel takes now; nothing where another thread sends."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            while self.pending:
                self._go_on(self.pending[0])
                if self.pending[0].size:
                    return
                self.pending.popleft()
        finally:
            self.lock.release()

    def _go_on(self, begun: Begun) -> None:
        """With the lock held, without waiting."""
        try:
            begun.taken(self._socket.sendmsg(begun.rest[:MAX_PARTS], (), _AT_ONCE))
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._lost(error) from error

    def _write_first(self, deadline_s: float) -> None:
        """All of what is first of those pending, with the lock held."""
        self._write(self.pending[0], deadline_s, begun=True)
        self.pending.popleft()

    def _write(self, message: Begun, deadline_s: float, begun: bool = False) -> None:
        """All of it, with the lock held. A message that has `begun` cannot be taken back."""
        whole = message.size
        try:
            while message.size:
                near = deadline_s - time.monotonic() < TICK_S
                try:
                    sent = self._socket.sendmsg(message.rest[:MAX_PARTS], (), _AT_ONCE if near else socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    wait(self._writable, near, deadline_s, f"{self._peer} did not take a message in time")
                    continue
                message.taken(sent)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException as error:
            if begun or message.size < whole or not isinstance(error, DeadlinePassed):
                # the peer cannot know where the next one begins
                self._end(f"a message to {self._peer} was cut: {error}")
            raise


def wait(ready: select.poll, polls: bool, deadline_s: float, late: str) -> None:
    """After a call that would block.

    Args:
        polls: whether the call did not wait; else it has waited for TICK_S inside the kernel.

    Raises:
        DeadlinePassed: with `late`.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise DeadlinePassed(late)
    if polls:
        ready.poll(min(left_s, TICK_S) * 1000)
