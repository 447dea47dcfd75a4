"""The contract of a channel library: whole messages between two ends, in memory that the caller provides.

    1. `listen` returns a listener. Its `address` is what peers connect to; it listens at no other address.
    2. `connect` retries until its deadline, because ranks start in any order. `accept` is the other end.
    3. `send` delivers one whole message of any size, including an empty one, and returns once its buffer may be
       reused. It may wait for the peer's `recv`: callers must not rely on buffering.
    4. `recv` writes one whole message into the caller's buffer and returns its length. Messages of a connection arrive
       in the order in which they were sent. A message that does not fit is rejected before a byte of it is written.
    5. `send_parts` and `recv_parts` do the same for a message in several buffers. A library that declares `iovec` does
       not join them first.
       A library that declares `begins` can start a send without waiting: `begin_send` returns a handle for
       `finish_send`, which any thread may call, in the order of the starts. The handle is None if the bytes are taken
       already.
    6. A library that declares `one_sided` lets its peer write and read registered memory: `register` returns a key for
       the peer, `put` and `get` check bounds before they touch memory, and the peer sees what was put once `flush`
       has returned. Other libraries raise `NotSupported`.
    7. Every call has a deadline in seconds of `time.monotonic()`. After `DeadlinePassed` the connection cannot be used
       for this message. One thread may send while another receives, but not two of a kind.
    8. `close` may be called at either end, twice, and in any order. It wakes waiting callers of both ends with
       `PeerClosed` or `Closed`, and leaves no thread and no descriptor.
    9. `evidence` returns the library's own counters, also after `close`.

`send`, `recv`, `put` and `get` allocate nothing that grows with the message, and Python copies no bytes except those
that the module of a library documents.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from dlobd.channel import Kind

Buffer = bytes | bytearray | memoryview | NDArray[Any]  # contiguous memory. A buffer to receive into must be writable.


class ChannelError(Exception):
    """Error of a channel. The message is one line that names the peer."""


class DeadlinePassed(ChannelError):
    """The call did not complete before its deadline."""


class PeerClosed(ChannelError):
    """The other end is closed or has disappeared."""


class Closed(ChannelError):
    """This end is closed."""


class MessageTooLong(ChannelError):
    """The message does not fit into the caller's buffer. It is lost; the next message is not."""


class OutOfBounds(ChannelError):
    """`put` or `get` outside of registered memory, or with an unknown key; no memory was touched."""


class NotSupported(ChannelError):
    """The library has not declared this capability."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Optional capabilities of a library."""

    iovec: bool  # sends and receives several buffers without joining them
    one_sided: bool  # has `register`, `put`, `get` and `flush`
    processes: bool  # its two ends may be in two processes
    hosts: bool  # its two ends may be on two hosts
    begins: bool = False  # has `begin_send` and `finish_send`
    moves: bool = False  # a started send progresses while the same end receives


@dataclass(frozen=True, slots=True)
class Traffic:
    """Totals of all connections of a channel. The end that calls `put` or `get` counts it."""

    kind: Kind
    device: str  # empty if there is none
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int
    put_bytes: int
    got_bytes: int
    lanes: tuple[str, ...] = ()  # TRANSPORT/DEVICE pairs that the library reports, as UCX writes them: rc_mlx5/mlx5_0:1


class Connection(Protocol):
    """One of two connected ends. `peer` is the name of the other end for error messages."""

    peer: str

    def send(self, message: Buffer, deadline_s: float) -> None:
        """Send one message. Raises DeadlinePassed, PeerClosed, Closed."""

    def begin_send(self, message: Buffer) -> Any:
        """Start to send. Unless None is returned, the message must not change before `finish_send`.

        Raises NotSupported, PeerClosed, Closed.
        """

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """Wait for a started send. Raises as `send`."""

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """Receive the next message at the start of `into` and return its length in bytes.

        Raises DeadlinePassed, PeerClosed, Closed, MessageTooLong.
        """

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """Send several buffers as one message. Raises as `send`."""

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """Receive the next message into consecutive buffers and return its length. Raises as `recv`."""

    def register(self, memory: Buffer) -> bytes:
        """Let the peer write and read `memory` until this connection closes; return the key for the peer."""

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Write into the peer's registered memory. Raises OutOfBounds, and as `send`."""

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Fill `into` from the peer's registered memory. Raises OutOfBounds, and as `send`."""

    def flush(self, deadline_s: float) -> None:
        """Wait until the peer sees all that was put. Raises DeadlinePassed, PeerClosed, Closed."""

    def close(self) -> None:
        """Close this end and wake all waiting callers of both ends."""


class Listener(Protocol):
    """Endpoint that peers connect to. `address` is text without spaces."""

    address: str

    def accept(self, deadline_s: float) -> Connection:
        """Return the next connection. Raises DeadlinePassed, Closed."""

    def close(self) -> None:
        """Stop accepting; accepted connections stay open."""


class OpenChannel(Protocol):
    """A channel that one rank has opened with a library. `transports` are the names that the library can carry."""

    capabilities: ClassVar[Capabilities]
    transports: ClassVar[tuple[str, ...]]

    def listen(self, device: str = "") -> Listener:
        """Listen on a device; without one the library chooses it."""

    def connect(self, address: str, deadline_s: float) -> Connection:
        """Connect to the listener at an address. Raises DeadlinePassed, Closed."""

    def evidence(self) -> Traffic:
        """Return the traffic so far."""

    def close(self) -> None:
        """Close all listeners and connections of this channel."""


class MessageConnection:
    """Base of connections that only send and receive whole messages: all other calls raise NotSupported."""

    library: str

    def begin_send(self, message: Buffer) -> Any:
        """Raise NotSupported."""
        raise NotSupported(f"library {self.library} cannot start a send without waiting")

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """Raise NotSupported."""
        raise NotSupported(f"library {self.library} cannot start a send without waiting")

    def register(self, memory: Buffer) -> bytes:
        """Raise NotSupported."""
        raise self._not_one_sided()

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Raise NotSupported."""
        raise self._not_one_sided()

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Raise NotSupported."""
        raise self._not_one_sided()

    def flush(self, deadline_s: float) -> None:
        """Raise NotSupported."""
        raise self._not_one_sided()

    def _not_one_sided(self) -> NotSupported:
        return NotSupported(f"library {self.library} has no one-sided access to memory")


@dataclass(slots=True)
class Counts:
    """Traffic of one connection. It needs no lock: one thread sends, and one thread receives.

    `kind` and `device` are those of the interface that carries the connection.
    """

    kind: Kind
    device: str
    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0


def total_traffic(connections: Iterable[Counts]) -> Traffic:
    """Add up connections. Different kinds make `mixed`; several devices are joined by commas."""
    counts = list(connections)
    kinds = {one.kind for one in counts}
    return Traffic(
        kind=kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "unknown",
        device=",".join(sorted({one.device for one in counts if one.device})),
        sent_messages=sum(one.sent_messages for one in counts),
        sent_bytes=sum(one.sent_bytes for one in counts),
        received_messages=sum(one.received_messages for one in counts),
        received_bytes=sum(one.received_bytes for one in counts),
        put_bytes=0,
        got_bytes=0,
    )


def view(buffer: Buffer) -> memoryview:
    """Return the bytes of a contiguous buffer without copying.

    Raises:
        ValueError: the buffer is not contiguous.
    """
    memory = memoryview(buffer)  # type: ignore[arg-type]  # numpy types declare the buffer protocol from 3.12 on
    if not memory.c_contiguous:
        raise ValueError("a channel's buffers must be contiguous")
    # an empty view cannot be cast
    return memory.cast("B") if memory.nbytes else memoryview(bytearray())


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for native libraries that read the environment once, when they are loaded, and restore them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
