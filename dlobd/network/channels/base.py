"""The contract of a channel's library: whole messages between two ends, in memory that the caller brings.

    1. `listen` gives a listener, whose `address` is what others connect to; it listens nowhere else.
    2. `connect` goes to an address, and asks until its deadline: ranks come in any order. `accept` is the other end.
    3. `send` delivers one whole message of any size, also of none, and returns once its buffer may be used again. It
       may wait for the peer's `recv`: no caller may rely on anything being buffered.
    4. `recv` takes one whole message into the caller's buffer and says how long it is. Messages of one connection come
       in the order in which they were sent. One that does not fit is refused before a byte of it is written.
    5. `send_parts` and `recv_parts` are the same for a message that lies in several buffers. A library that declares
       `iovec` does not join them first.
       One that declares `begins` may be asked to begin a send alone: `begin_send` does not wait. What it returns goes
       to `finish_send`, in any thread, in the order of the begins; it is None where the bytes are taken already.
    6. A library that declares `one_sided` lets its peer write and read memory that was registered: `register` gives a
       key to be sent there, `put` and `get` check bounds before they touch memory, and what was put is visible to the
       peer once `flush` has returned. The others raise `NotSupported`.
    7. Every call has a deadline, a time of `time.monotonic()` in seconds; that it has passed is `DeadlinePassed`, and
       the connection is of no use for this message. One thread may send while another receives; not two of a kind.
    8. `close` may be called at either end, twice, and in any order. Callers waiting at the other end, or in another
       thread of this one, are woken with `PeerClosed` or `Closed`. No thread and no descriptor is left.
    9. `evidence` says what was carried, by counters of the library's own, also after `close`.

Inside `send`, `recv`, `put` and `get` nothing is allocated that grows with the message, and Python copies no bytes of
its own beside what a member's module names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview | NDArray[Any]
"""Contiguous memory. What is received into must be writable."""

Kind = Literal["verbs", "ipoib", "tcp", "shm", "local", "mixed", "unknown"]
"""By what bytes really went; `local` is the memory of one process."""


class ChannelError(Exception):
    """What a channel may raise; its message is one line that names the peer."""


class DeadlinePassed(ChannelError):
    """What was asked for did not happen in time."""


class PeerClosed(ChannelError):
    """The other end is closed, or gone."""


class Closed(ChannelError):
    """This end is closed."""


class MessageTooLong(ChannelError):
    """The message does not fit into what it was to be received into; it is lost, the next one is not."""


class OutOfBounds(ChannelError):
    """`put` or `get` outside of registered memory, or with a key that is not known; nothing was touched."""


class NotSupported(ChannelError):
    """The library has not declared what it was asked for."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a library can do beside `send` and `recv`.

    iovec: messages in several buffers go without being joined.
    one_sided: `register`, `put`, `get` and `flush`.
    processes, hosts: whether its two ends may lie in two processes, and on two hosts.
    begins: a send can be begun, and its end awaited by another thread.
    moves: what was begun moves on while the same end receives.
    """

    iovec: bool
    one_sided: bool
    processes: bool
    hosts: bool
    begins: bool = False
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a channel's connections have carried together; a `put` counts where it was asked for, and so does a `get`.

    `device` is empty where there is none. `lanes` are what the library itself says it has used, TRANSPORT/DEVICE as
    UCX writes it: rc_mlx5/mlx5_0:1; empty where it has nothing to say.
    """

    kind: Kind
    device: str
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int
    put_bytes: int
    got_bytes: int
    lanes: tuple[str, ...] = ()


class Connection(Protocol):
    """One of two connected ends. `peer` names the other one, for error messages."""

    peer: str

    def send(self, message: Buffer, deadline_s: float) -> None:
        """One message. Raises DeadlinePassed, PeerClosed, Closed."""

    def begin_send(self, message: Buffer) -> Any:
        """Begins to send; the message must stay as it is until `finish_send`, unless None is returned. Raises
        NotSupported, PeerClosed, Closed."""

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """Raises as `send`."""

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """The next message, at the beginning of `into`; its length in bytes.

        Raises DeadlinePassed, PeerClosed, Closed, MessageTooLong."""

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """One message, made of several buffers. Raises as `send`."""

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """The next message, which fills one buffer after the other; its length in bytes. Raises as `recv`."""

    def register(self, memory: Buffer) -> bytes:
        """Lets the peer write and read `memory` until this connection is closed; the key by which it names it."""

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Writes into the peer's registered memory. Raises OutOfBounds, and as `send`."""

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Reads as much of the peer's registered memory as `into` holds. Raises OutOfBounds, and as `send`."""

    def flush(self, deadline_s: float) -> None:
        """Returns once the peer sees all that was put. Raises DeadlinePassed, PeerClosed, Closed."""

    def close(self) -> None:
        """Wakes all waiting callers, at both ends."""


class Listener(Protocol):
    """Where others connect to. `address` is a word without spaces that travels as text."""

    address: str

    def accept(self, deadline_s: float) -> Connection:
        """The next one that has connected. Raises DeadlinePassed, Closed."""

    def close(self) -> None:
        """No peer can connect any more; connections that were accepted live on."""


class Channel(Protocol):
    """A library, as one rank uses it. `transports` are the rows of the registry `channels` that it can carry."""

    capabilities: ClassVar[Capabilities]
    transports: ClassVar[tuple[str, ...]]

    def listen(self, device: str = "") -> Listener:
        """Listens on the device, an interface or whatever the library names so; empty: the one that it chooses."""

    def connect(self, address: str, deadline_s: float) -> Connection:
        """A connection to the listener there. Raises DeadlinePassed, Closed."""

    def evidence(self) -> Traffic:
        """What was carried so far."""

    def close(self) -> None:
        """Closes all listeners and connections that came of it."""


def view(buffer: Buffer) -> memoryview:
    """The bytes of a contiguous buffer, not copied.

    Raises:
        ValueError: it is not contiguous.
    """
    seen = memoryview(buffer)  # type: ignore[arg-type]  # numpy's arrays are, and its types say so from 3.12 on
    if not seen.c_contiguous:
        raise ValueError("a channel's buffers must be contiguous")
    # what holds nothing cannot be cast
    return seen.cast("B") if seen.nbytes else memoryview(bytearray())
