"""Interface of a channel library: whole messages between two ends, in memory that the caller provides.

    1. Peers connect to the `address` of a listener; it listens at no other address.
    2. `connect` retries until its deadline, because ranks start in any order.
    3. A message has any size, including zero. `send` returns once its buffer may be reused. It may wait for the peer's
       `recv`: callers must not rely on buffering.
    4. Messages of a connection arrive in the order in which they were sent. A message that does not fit is rejected
       and leaves the buffer unchanged.
    5. A library that declares `begins` can start a send without waiting: `begin_send` returns a handle for
       `finish_send`, which any thread may call, in the order of the starts. The handle is None if the library has taken
       all bytes already. `begin_recv` announces the memory of a later message, and `finish_recv` waits for it, in the
       order of the announcements. A library may ignore the announcement.
    6. A library that declares `one_sided` lets its peer write and read registered memory. `put` and `get` check bounds
       before they touch memory, and the peer sees the written bytes once `flush` has returned.
    7. Every call has a deadline in seconds of `time.monotonic()`. After `DeadlinePassed` the connection cannot be used
       for this message. One thread may send while another receives, but two threads may not both send or both receive.
    8. `close` may be called at either end, twice, and in any order. It wakes waiting callers of both ends with
       `PeerClosed` or `Closed`, and leaves no thread and no descriptor.

`send`, `recv`, `put` and `get` allocate nothing that grows with the message, and Python copies no bytes except those
that the module of a library documents.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from dlobd.channel import Kind

Array = NDArray[Any]  # array with any type of element

Buffer = bytes | bytearray | memoryview | Array  # contiguous memory. A buffer to receive into must be writable.


class ChannelError(Exception):
    """Error of a channel. Its message is one line that names the peer."""


class DeadlinePassed(ChannelError):
    """Error of a call that did not complete before its deadline."""


class PeerClosed(ChannelError):
    """Error of a call after the other end has closed or disappeared."""


class Closed(ChannelError):
    """Error of a call at a closed end."""


class MessageTooLong(ChannelError):
    """Error of a message that does not fit into the caller's buffer. Only this message is lost."""


class OutOfBounds(ChannelError):
    """Error of a `put` or `get` outside of registered memory, or with an unknown key; no memory was accessed."""


class NotSupported(ChannelError):
    """Error raised by a call that needs a capability which the library does not declare."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Optional capabilities of a library."""

    one_sided: bool = False  # has `register`, `put`, `get` and `flush`
    begins: bool = False  # has `begin_send` and `finish_send`; a started send progresses while the same end receives


@dataclass(slots=True)
class Traffic:
    """Traffic of a connection, or of all connections of a channel. The end that calls `put` or `get` counts the bytes.

    Counting needs no lock: one thread sends, and one thread receives. `lanes` are the TRANSPORT/DEVICE pairs that the
    library reports, as UCX writes them: rc_mlx5/mlx5_0:1.
    """

    kind: Kind
    device: str  # empty if there is none
    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    put_bytes: int = 0
    got_bytes: int = 0
    lanes: tuple[str, ...] = ()


def total_traffic(connections: Iterable[Traffic]) -> Traffic:
    """Return the sum over connections. Different kinds give `mixed`; several devices are joined by commas."""
    every = list(connections)
    kinds = {traffic.kind for traffic in every}
    counters = [field.name for field in fields(Traffic) if field.name.endswith(("_messages", "_bytes"))]
    return Traffic(
        kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "unknown",
        ",".join(sorted({traffic.device for traffic in every if traffic.device})),
        lanes=tuple(sorted({lane for traffic in every for lane in traffic.lanes})),
        **{name: sum(getattr(traffic, name) for traffic in every) for name in counters},
    )


class Connection(ABC):
    """End of a connection. A call that needs a capability which the library does not declare raises NotSupported."""

    library: ClassVar[str]
    peer: str  # name of the other end, for error messages

    def send(self, message: Buffer, deadline_s: float) -> None:
        """Send one message. Raises DeadlinePassed, PeerClosed, Closed."""
        self.send_parts((message,), deadline_s)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """Receive the next message at the start of `into`; return its length in bytes.

        Raises DeadlinePassed, PeerClosed, Closed, MessageTooLong.
        """
        return self.recv_parts((into,), deadline_s)

    @abstractmethod
    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """Send several buffers as one message. Raises the errors of `send`."""

    @abstractmethod
    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """Receive the next message into consecutive buffers; return its length. Raises the errors of `recv`."""

    @abstractmethod
    def close(self) -> None:
        """Close this end and wake all waiting callers of both ends."""

    def begin_send(self, message: Buffer) -> Any:
        """Start a send. If it returns a handle, the message must not change before `finish_send`.

        Raises PeerClosed, Closed.
        """
        raise self._not_supported("start a send without waiting")

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """Wait for a started send. Raises the errors of `send`."""
        raise self._not_supported("start a send without waiting")

    def begin_recv(self, into: Buffer) -> Any:
        """Announce the memory of the next message without memory; return a handle for `finish_recv`.

        No message may be received by `recv` before all announced messages are. Raises PeerClosed, Closed.
        """
        return into

    def finish_recv(self, begun: Any, deadline_s: float) -> int:
        """Wait for an announced message; return its length. Raises the errors of `recv`."""
        return self.recv(begun, deadline_s)

    def register(self, memory: Buffer) -> bytes:
        """Register memory, which the peer may write and read until this end closes; return the key for the peer."""
        raise self._not_supported("access memory of the peer")

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Write into the peer's registered memory. Raises OutOfBounds and the errors of `send`."""
        raise self._not_supported("access memory of the peer")

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Fill `into` from the peer's registered memory. Raises OutOfBounds and the errors of `send`."""
        raise self._not_supported("access memory of the peer")

    def flush(self, deadline_s: float) -> None:
        """Wait until the peer sees all bytes of earlier `put` calls. Raises DeadlinePassed, PeerClosed, Closed."""
        raise self._not_supported("access memory of the peer")

    def _not_supported(self, what: str) -> NotSupported:
        return NotSupported(f"library {self.library} cannot {what}")


class Listener(Protocol):
    """Endpoint that peers connect to. `address` is text without spaces."""

    address: str

    def accept(self, deadline_s: float) -> Connection:
        """Return the next connection. Raises DeadlinePassed, Closed."""

    def close(self) -> None:
        """Stop accepting; accepted connections stay open."""


class OpenChannel(Protocol):
    """Channel that a rank has opened with a library."""

    capabilities: ClassVar[Capabilities]

    def listen(self, device: str = "") -> Listener:
        """Listen on a device; the library chooses a device if `device` is empty."""

    def connect(self, address: str, deadline_s: float) -> Connection:
        """Connect to the listener at an address. Raises DeadlinePassed, Closed."""

    def evidence(self) -> Traffic:
        """Return the total traffic of all connections so far."""

    def close(self) -> None:
        """Close all listeners and connections of this channel."""


C = TypeVar("C", bound=Connection)


class AcceptQueue(Generic[C]):
    """Queue of a listener's connections that `accept` has not returned yet."""

    address: str

    def __init__(self) -> None:
        self._arrived: deque[C] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def accept(self, deadline_s: float) -> C:
        with self._changed:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not self._changed.wait_for(lambda: self._closed or self._arrived, left_s):
                raise DeadlinePassed(f"no peer connected to {self.address} in time")
            if self._closed:
                raise Closed(f"{self.address} is closed")
            return self._arrived.popleft()

    def _deliver(self, connection: C) -> None:
        with self._changed:
            self._arrived.append(connection)
            self._changed.notify_all()


def view(buffer: Buffer) -> memoryview:
    """Return the bytes of a contiguous buffer without copying. Raises ValueError: the buffer is not contiguous."""
    memory = memoryview(buffer)  # type: ignore[arg-type]  # numpy types declare the buffer protocol from 3.12 on
    if not memory.c_contiguous:
        raise ValueError("a channel's buffers must be contiguous")
    # an empty view cannot be cast
    return memory.cast("B") if memory.nbytes else memoryview(bytearray())


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, for native libraries that read them once, when they are loaded."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)


SLOW_S = 100e-6
"""Duration of a yield that shows another runnable process on the core; otherwise a yield takes about 1 us."""

REST_S = 1.0
"""Time without yields after a slow one. A yield gives away a time slice of milliseconds, but a sleeping thread is woken
as soon as its message arrives."""


class Yields:
    """Yields of one thread or connection. On a busy core they stop for REST_S."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def allowed(self) -> bool:
        """Return True if the core has not been busy lately."""
        return time.monotonic() >= self._next_s

    def once(self) -> bool:
        """Yield the core; return False if another process used it, so that the caller should sleep."""
        start_s = time.monotonic()
        os.sched_yield()
        end_s = time.monotonic()
        if end_s - start_s < SLOW_S:
            return True
        self._next_s = end_s + REST_S
        return False
