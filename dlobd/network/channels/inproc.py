"""A channel between threads of one process: the contract without a network, for tests and as its reference.

A message is handed over by reference, and its sender waits until it was taken. So one copy is made of it, by the
receiving thread, straight from the sender's buffers into the receiver's; `put` and `get` make one as well.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from dlobd.network.channels.base import (
    Buffer,
    Capabilities,
    Closed,
    DeadlinePassed,
    MessageTooLong,
    NotSupported,
    OutOfBounds,
    PeerClosed,
    Traffic,
    view,
)

_LISTENERS: dict[str, InprocListener] = {}
"""Who listens in this process: an address means the same to all of its threads, and nothing elsewhere."""

_LISTENING = threading.Condition()
"""Guards `_LISTENERS`; notified when a listener is added."""

_NUMBERS = itertools.count(1)


class InprocChannel:
    """See `dlobd.network.channels.base.Channel`."""

    capabilities: ClassVar[Capabilities] = Capabilities(iovec=True, one_sided=True, processes=False, hosts=False)
    transports: ClassVar[tuple[str, ...]] = ("inproc",)

    def __init__(self) -> None:
        self._opened: list[InprocListener | InprocConnection] = []
        self._counts = _Counts()

    def listen(self, device: str = "") -> InprocListener:
        """See the contract; there is one device, the process."""
        listener = InprocListener(f"inproc:{os.getpid()}:{next(_NUMBERS)}", self._counts, self._opened)
        with _LISTENING:
            _LISTENERS[listener.address] = listener
            _LISTENING.notify_all()
        self._opened.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> InprocConnection:
        """See the contract."""
        with _LISTENING:
            _await(_LISTENING, lambda: address in _LISTENERS, deadline_s, f"nobody listens at {address}")
            listener = _LISTENERS[address]
        connection = listener.join(self._counts)
        self._opened.append(connection)
        return connection

    def evidence(self) -> Traffic:
        """See the contract."""
        return self._counts.carried()

    def close(self) -> None:
        """See the contract."""
        for opened in self._opened:
            opened.close()
        self._opened.clear()


class InprocListener:
    """See `dlobd.network.channels.base.Listener`.

    Args:
        opened: of its channel, which closes what was accepted.
    """

    def __init__(self, address: str, counts: _Counts, opened: list[InprocListener | InprocConnection]) -> None:
        self.address = address
        self._counts = counts
        self._opened = opened
        self._waiting: deque[InprocConnection] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def join(self, counts: _Counts) -> InprocConnection:
        """The connecting end; its other one waits to be accepted."""
        with self._changed:
            if self._closed:
                raise PeerClosed(f"{self.address} does not listen any more")
            pair = _Pair()
            ends = InprocConnection(pair, 0, self.address, counts), InprocConnection(pair, 1, "a peer", self._counts)
            pair.ends = ends
            self._waiting.append(ends[1])
            self._changed.notify_all()
        return ends[0]

    def accept(self, deadline_s: float) -> InprocConnection:
        """See the contract."""
        with self._changed:
            _await(
                self._changed, lambda: bool(self._waiting or self._closed), deadline_s, f"nobody came to {self.address}"
            )
            if self._closed:
                raise Closed(f"{self.address} is closed")
            connection = self._waiting.popleft()
        self._opened.append(connection)
        return connection

    def close(self) -> None:
        """See the contract."""
        with _LISTENING:
            _LISTENERS.pop(self.address, None)
        with self._changed:
            self._closed = True
            for connection in self._waiting:
                connection.close()  # who connected, and was never accepted, is not left to wait
            self._waiting.clear()
            self._changed.notify_all()


class InprocConnection:
    """See `dlobd.network.channels.base.Connection`."""

    def __init__(self, pair: _Pair, side: int, peer: str, counts: _Counts) -> None:
        self.peer = peer
        self._pair = pair
        self._side = side
        self._counts = counts
        self._inbox: deque[_Message] = deque()
        self._regions: dict[bytes, memoryview] = {}
        self.closed = False

    def begin_send(self, message: Buffer) -> Any:
        """Raises NotSupported."""
        raise NotSupported("library inproc sends only as a whole")

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """Raises NotSupported."""
        raise NotSupported("library inproc sends only as a whole")

    def send(self, message: Buffer, deadline_s: float) -> None:
        """See the contract."""
        self.send_parts((message,), deadline_s)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """See the contract."""
        return self.recv_parts((into,), deadline_s)

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """See the contract."""
        message, peer = _Message([view(part) for part in parts]), self._other
        with self._pair.changed:
            self._check_open()
            peer._inbox.append(message)
            self._pair.changed.notify_all()
            try:
                self._wait(lambda: message.state == "done", deadline_s, "did not take a message", message)
            except BaseException:
                if message in peer._inbox:
                    peer._inbox.remove(message)
                raise
        self._counts.sent(message.bytes)

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """See the contract."""
        into = [view(part) for part in parts]
        with self._pair.changed:
            self._wait(lambda: bool(self._inbox), deadline_s, "sent no message")
            message = self._inbox.popleft()
            message.state = "taken"  # from here on its sender waits, whatever its deadline: memory is quick
        try:
            room = sum(part.nbytes for part in into)
            if message.bytes > room:
                raise MessageTooLong(f"a message of {message.bytes} bytes from {self.peer} does not fit into {room}")
            _copy(message.parts, into)
        finally:
            with self._pair.changed:
                message.state = "done"
                message.parts = []
                self._pair.changed.notify_all()
        self._counts.received(message.bytes)
        return message.bytes

    def register(self, memory: Buffer) -> bytes:
        """See the contract."""
        key = b"%d" % next(_NUMBERS)
        with self._pair.changed:
            self._check_open()
            self._regions[key] = view(memory)
        return key

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        own = view(source)
        self._region(key, offset_bytes, own.nbytes)[:] = own
        self._counts.put(own.nbytes)

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        own = view(into)
        own[:] = self._region(key, offset_bytes, own.nbytes)
        self._counts.got(own.nbytes)

    def flush(self, deadline_s: float) -> None:
        """See the contract; here a `put` is visible at once."""
        with self._pair.changed:
            self._check_open()

    def close(self) -> None:
        """See the contract."""
        with self._pair.changed:
            self.closed = True
            self._regions.clear()
            self._pair.changed.notify_all()

    @property
    def _other(self) -> InprocConnection:
        return self._pair.ends[1 - self._side]

    def _region(self, key: bytes, offset_bytes: int, size_bytes: int) -> memoryview:
        with self._pair.changed:
            self._check_open()
            region = self._other._regions.get(key)
        if region is None:
            raise OutOfBounds(f"{self.peer} has registered no memory {key!r}")
        if offset_bytes < 0 or offset_bytes + size_bytes > region.nbytes:
            asked = f"{offset_bytes} .. {offset_bytes + size_bytes}"
            raise OutOfBounds(f"bytes {asked} are not in the {region.nbytes} that {self.peer} has registered")
        return region[offset_bytes : offset_bytes + size_bytes]

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the connection to {self.peer} is closed")
        if self._other.closed:
            raise PeerClosed(f"{self.peer} has closed the connection")

    def _wait(self, done: Callable[[], bool], deadline_s: float, what: str, sent: _Message | None = None) -> None:
        """Until `done`, or one end is closed, or the deadline has passed; what is being taken is waited for."""

        def over() -> bool:
            taken = sent is not None and sent.state != "waiting"
            return done() or (not taken and (self.closed or self._other.closed))

        try:
            _await(self._pair.changed, over, deadline_s, f"{self.peer} {what}")
        except DeadlinePassed:
            if sent is None or sent.state == "waiting":
                raise
            self._pair.changed.wait_for(done)
        if not done():
            self._check_open()


class _Pair:
    """What two connected ends share."""

    ends: tuple[InprocConnection, InprocConnection]

    def __init__(self) -> None:
        self.changed = threading.Condition()


class _Message:
    """One that is on its way: waiting, then taken, then done."""

    def __init__(self, parts: list[memoryview]) -> None:
        self.parts = parts
        self.bytes = sum(part.nbytes for part in parts)
        self.state = "waiting"


class _Counts:
    """What one channel's connections have carried."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, Any] = dict.fromkeys(
            ("sent_messages", "sent_bytes", "received_messages", "received_bytes", "put_bytes", "got_bytes"), 0
        )

    def _add(self, **more: int) -> None:
        with self._lock:
            for name, value in more.items():
                self._of[name] += value

    def sent(self, size_bytes: int) -> None:
        self._add(sent_messages=1, sent_bytes=size_bytes)

    def received(self, size_bytes: int) -> None:
        self._add(received_messages=1, received_bytes=size_bytes)

    def put(self, size_bytes: int) -> None:
        self._add(put_bytes=size_bytes)

    def got(self, size_bytes: int) -> None:
        self._add(got_bytes=size_bytes)

    def carried(self) -> Traffic:
        with self._lock:
            return Traffic("local", "", **self._of)


def _await(changed: threading.Condition, done: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Waits, with the condition held, until `done`. Raises DeadlinePassed."""
    if not changed.wait_for(done, max(0.0, deadline_s - time.monotonic())):
        raise DeadlinePassed(f"{what} in time")


def _copy(sources: Sequence[memoryview], targets: Sequence[memoryview]) -> None:
    """All bytes of the sources into the targets, which hold at least as many."""
    left = [source for source in sources if source.nbytes]
    for target in targets:
        at = 0
        while left and at < target.nbytes:
            size = min(left[0].nbytes, target.nbytes - at)
            target[at : at + size] = left[0][:size]
            at += size
            if size == left[0].nbytes:
                left.pop(0)
            else:
                left[0] = left[0][size:]
