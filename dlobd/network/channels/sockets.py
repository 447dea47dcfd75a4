"""TCP by Python's sockets: the baseline for all other libraries.

A connection binds its source address to the interface of the channel, and fails before it starts if the kernel's routes
lead over another interface. Traffic within this host goes over loopback, and `evidence` reports loopback.

A message is its length (8 bytes, little-endian) followed by its bytes. One `sendmsg` gathers the length and the
caller's buffers, and `recvmsg_into` scatters into the caller's buffers. Up to STAGE_BYTES of a message pass through a
buffer of the connection, so that a short message costs one system call; Python copies nothing else.

A call blocks in the kernel (SO_RCVTIMEO, MSG_WAITALL), so that a long message is one call instead of one per chunk
that arrives; close to its deadline it polls instead. A receiver first polls SPINS times. While a started send is
pending, it waits for both directions: two ends that send to each other need no second thread.

Both ends prove that they have the run's secret when they connect (`dlobd.network.channels.authentication`). The bytes
are neither encrypted nor signed.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from dlobd.errors import SetupError
from dlobd.network import interfaces
from dlobd.network.channels import authentication, base
from dlobd.network.channels.ip import IpChannel, local_address, parse_address, source_towards, traffic_over

LIBRARY = "sockets"
LENGTH = struct.Struct("<Q")  # prefix of a message: the number of bytes that follow
MAX_PARTS = 1024  # UIO_MAXIOV of Linux

TICK_S = 0.2
"""Longest time that a call blocks in the kernel before it checks its deadline; closer to the deadline it polls."""

STAGE_BYTES = 8192  # copying this many bytes costs less than the system call that the copy saves

SPINS = 20
"""Polls before a receiver sleeps: about 20 microseconds, the cost of a wake-up. Each unsuccessful poll yields
the core (sched_yield), so that ranks on a shared core do not stall each other. On a busy core the receiver sleeps at
once."""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 10, 5, 4
"""A receiver detects after 30 s that the peer's host has vanished. A sender waits for its deadline: TCP_USER_TIMEOUT
would also end connections whose receiver is only slow (tcp(7))."""

NEAR_US, NEAR_SEND_BYTES = 33, 100_000
"""Round trip below which a peer is near, and its send buffer. A near peer is in another namespace of this machine, or
on an adjacent host. The kernel would buffer megabytes between the two ends, which then do not fit into the cache: an
all-reduce over such a link takes twice as long. NEAR_SEND_BYTES per round trip are 3 GB/s, more than one thread copies.
A farther peer needs a larger buffer, which the kernel tunes itself. Over loopback the buffer makes no difference
(docs/results.md)."""

RETRY_S = 0.02  # interval between attempts to connect to an address without a listener
CHECK_S = 0.1  # interval at which a waiting `connect` checks whether its channel was closed
BACKLOG = 128  # maximum number of connections that wait for `accept`; the kernels of further peers retry (tcp(7))
REFUSED_KEPT = 100  # number of refused peers that are remembered: a peer that retries forever must not fill the memory
PAUSE_S = 0.1  # pause after the kernel had no descriptor for a new connection: accept would fail again at once
_NO_WAIT = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
_MIN_RTT = struct.Struct("I")
_MIN_RTT_AT = 148  # tcpi_min_rtt in struct tcp_info of linux/tcp.h, microseconds; since Linux 4.6
_TIMEVAL = struct.Struct("ll")


class _NotListening(Exception):
    """Error of a peer that does not listen; `connect` may retry."""


class SocketsChannel(IpChannel):
    """Channel of library `sockets`."""

    library = LIBRARY
    capabilities: ClassVar[base.Capabilities] = base.Capabilities(begins=True)

    def listen(self, device: str = "") -> SocketsListener:
        """Listen on an interface. Raises UsageError, SetupError: the interface cannot be used."""
        self._check_open()
        host = local_address(self._transport, device or self._device)
        listener = SocketsListener(host, self._secret, self._connected)
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> SocketsConnection:
        """Connect. Raises Refused: the other end lacks the secret; SetupError: the route uses another interface."""
        host, port = parse_address(LIBRARY, address)
        source = source_towards(self._transport, self._device, host)
        while True:
            self._check_open()
            try:
                return self._try_connect(source, host, port, deadline_s)
            except _NotListening as error:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise base.DeadlinePassed(f"no listener at {address} answered in time: {error}") from error
                self._closed.wait(min(RETRY_S, left_s))

    def _connected(self, connected: socket.socket, peer: str) -> SocketsConnection:
        traffic = traffic_over(interfaces.carrying(connected.getsockname()[0], connected.getpeername()[0]))
        connection = SocketsConnection(connected, peer, traffic)
        self._keep(connection, traffic)
        return connection

    def _try_connect(self, source: str, host: str, port: int, deadline_s: float) -> SocketsConnection:
        peer = f"{host}:{port}"
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if source:
                connected.bind((source, 0))
            try:
                connected.connect((host, port))
            except BlockingIOError:
                self._wait_for(connected, select.POLLOUT, deadline_s, peer)
                if error := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, os.strerror(error)) from None
            if connected.getsockname() == connected.getpeername():
                raise _NotListening("connection refused")  # the kernel may connect a socket to itself by chance
            greeting = self._exactly(connected, authentication.GREETING_BYTES, deadline_s, peer, greeting=True)
            hello = authentication.hello(self._secret, greeting)
            connected.send(hello)  # this short message always fits into the buffer of a new connection
            answer = self._exactly(connected, authentication.PROOF_BYTES, deadline_s, peer)
            authentication.check(self._secret, greeting, hello, answer, peer)
            return self._connected(connected, peer)
        except OSError as error:
            connected.close()
            raise _NotListening(error.strerror or str(error)) from error
        except BaseException:
            connected.close()
            raise

    def _exactly(
        self, connected: socket.socket, size: int, deadline_s: float, peer: str, greeting: bool = False
    ) -> bytes:
        """Read exactly `size` bytes; reject a greeting at its first wrong byte."""
        received = b""
        while len(received) < size:
            self._wait_for(connected, select.POLLIN, deadline_s, peer)
            more = connected.recv(size - len(received))
            if not more:
                raise _NotListening("the peer closed the connection")
            received += more
            if greeting and not authentication.begins_well(received):
                raise authentication.Refused(f"{peer} is no listener of library {LIBRARY}")
        return received

    def _wait_for(self, connected: socket.socket, event: int, deadline_s: float, peer: str) -> None:
        poll = select.poll()
        poll.register(connected, event)
        while True:
            self._check_open()
            left_s = max(0.0, deadline_s - time.monotonic())
            if poll.poll(min(left_s, CHECK_S) * 1000):
                return
            if not left_s:
                raise base.DeadlinePassed(f"{peer} did not answer in time")


@dataclass(slots=True)
class _Handshake:
    """Connected peer that is not authenticated yet."""

    connected: socket.socket
    peer: str
    greeting: bytes
    until_s: float
    received: bytearray = field(default_factory=bytearray)
    answer: bytes = b""
    fault: str = ""


class SocketsListener(base.AcceptQueue["SocketsConnection"]):
    """Listener with a thread that authenticates all new peers concurrently.

    A peer that does not have the run's secret, speaks another protocol, or stays silent for HANDSHAKE_S is refused with
    one line on stderr; the listener continues. `host` is never the wildcard address. Raises SetupError: the address
    cannot be bound.
    """

    def __init__(self, host: str, secret: bytes, make: Callable[[socket.socket, str], SocketsConnection]) -> None:
        super().__init__()
        self._secret = secret
        self._make = make
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind((host, 0))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            raise SetupError(f"Cannot listen on {host}: {error.strerror}.", "choose another interface") from error
        self.address = f"{LIBRARY}:{host}:{self._socket.getsockname()[1]}"
        self.refused: deque[str] = deque(maxlen=REFUSED_KEPT)  # log lines
        self._closing = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._serve, name=f"dlobd-listen-{self.address}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting, and disconnect peers that were never accepted."""
        with self._closing:
            with self._changed:
                if self._closed:
                    return
                self._closed = True
                self._changed.notify_all()
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
            self._socket.close()
            for connection in self._arrived:
                connection.close()
            self._arrived.clear()

    def _serve(self) -> None:
        handshakes: list[_Handshake] = []
        with selectors.PollSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closed:
                until_s = min((one.until_s for one in handshakes), default=None)
                ready = selector.select(None if until_s is None else max(0.0, until_s - time.monotonic()))
                if any(key.fileobj is self._socket for key, _ in ready) and (new := self._greet()):
                    selector.register(new.connected, selectors.EVENT_READ, new)
                    handshakes.append(new)
                readable = {id(key.data) for key, _ in ready}
                for one in list(handshakes):
                    authentic = self._read(one) if id(one) in readable else None
                    if authentic is None and one.until_s > time.monotonic():
                        continue  # more bytes may arrive
                    handshakes.remove(one)
                    selector.unregister(one.connected)
                    if authentic:
                        self._admit(one)
                    else:
                        late = f"it did not complete the handshake within {authentication.HANDSHAKE_S:g} s"
                        self._refuse(one, one.fault or late)
        for one in handshakes:
            one.connected.close()

    def _greet(self) -> _Handshake | None:
        try:
            connected, (host, port) = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            authentication.report(self.address, "a peer", error.strerror or str(error))
            select.select([self._wake], [], [], PAUSE_S)
            return None
        connected.setblocking(False)
        greeting = authentication.greeting()
        try:
            connected.send(greeting)  # this short message always fits into the buffer of a new connection
        except OSError:
            connected.close()  # the peer has left already
            return None
        return _Handshake(connected, f"{host}:{port}", greeting, time.monotonic() + authentication.HANDSHAKE_S)

    def _read(self, one: _Handshake) -> bool | None:
        """Return True for an authentic peer, False for an invalid peer (`fault` is the reason), None if incomplete."""
        try:
            more = one.connected.recv(authentication.HELLO_BYTES - len(one.received))
        except BlockingIOError:
            return None
        except OSError as error:
            one.fault = error.strerror or str(error)
            return False
        one.received += more
        if not authentication.begins_well(one.received):
            one.fault = "it does not speak the protocol of dlobd's channels"
        elif not more:
            one.fault = "it closed the connection before it was authenticated"
        elif len(one.received) < authentication.HELLO_BYTES:
            return None
        elif (answer := authentication.answer(self._secret, one.greeting, bytes(one.received))) is None:
            one.fault = "it does not have the run's secret"
            one.answer = authentication.REFUSAL
        else:
            one.answer = answer
        return not one.fault

    def _admit(self, one: _Handshake) -> None:
        try:
            one.connected.send(one.answer)
            connection = self._make(one.connected, one.peer)
        except OSError as error:
            self._refuse(one, error.strerror or str(error))
            return
        self._deliver(connection)  # `close` joins this thread before it clears the queue

    def _refuse(self, one: _Handshake, why: str) -> None:
        authentication.report(self.address, one.peer, why)
        self.refused.append(f"{one.peer}: {why}")
        with suppress(OSError):  # the peer does not read it
            one.connected.send(one.answer)
        one.connected.close()


class SocketsConnection(base.Connection):
    """One end of a connection over an authenticated socket, which it closes. Several threads may send.

    The kernel takes as much of a started message as fits. The rest is sent by `finish_send`, or by the receiving thread
    of the same end meanwhile.

    A message that is only partly sent at its deadline ends the connection. After a message that is only partly received
    at its deadline, the next call skips the rest. Messages that were sent before `close` are still delivered.
    """

    library = LIBRARY

    def __init__(self, connected: socket.socket, peer: str, traffic: base.Traffic) -> None:
        self.peer = peer
        self._socket = connected
        self._traffic = traffic
        self._sending = threading.Lock()  # held while sending, and while removing from `_pending`
        self._pending: deque[PendingSend] = deque()  # incomplete messages, in order; only one thread starts messages
        self._header = memoryview(bytearray(LENGTH.size))
        self._receiving = threading.Lock()
        self._yields = base.Yields()
        self._ended = ""  # reason why this end is closed
        self._stage = memoryview(bytearray(STAGE_BYTES))
        self._start = self._end = 0  # received bytes in the stage buffer that were not delivered yet
        self._left = 0  # bytes of the current message that were not delivered yet
        self._readable, self._writable, self._either = select.poll(), select.poll(), select.poll()
        self._readable.register(connected, select.POLLIN)
        self._writable.register(connected, select.POLLOUT)
        self._either.register(connected, select.POLLIN | select.POLLOUT)
        _set_options(connected)

    def send_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> None:
        views = [memory for part in parts if (memory := base.view(part)).nbytes]
        size = sum(part.nbytes for part in views)
        with self._sending:
            while self._pending:
                self._write_first(deadline_s)
            LENGTH.pack_into(self._header, 0, size)
            self._write(PendingSend([self._header, *views], LENGTH.size + size), deadline_s)
        self._traffic.sent_messages += 1
        self._traffic.sent_bytes += size

    def begin_send(self, message: base.Buffer) -> PendingSend | None:
        """Start a send; unless another message is pending, send as many bytes as the kernel takes without waiting."""
        memory = base.view(message)
        header = memoryview(LENGTH.pack(memory.nbytes))
        pending = PendingSend([header, memory] if memory.nbytes else [header], LENGTH.size + memory.nbytes)
        if self._sending.acquire(blocking=False):
            try:
                if not self._pending:
                    self._write_some(pending)
                if pending.size:
                    self._pending.append(pending)
            finally:
                self._sending.release()
        else:
            self._pending.append(pending)  # another thread is sending, and may wait for the peer
        self._traffic.sent_messages += 1
        self._traffic.sent_bytes += memory.nbytes
        return pending if pending.size else None

    def finish_send(self, begun: PendingSend, deadline_s: float) -> None:
        with self._sending:
            while begun.size:
                self._write_first(deadline_s)

    def recv_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> int:
        views = [memory for part in parts if (memory := base.view(part)).nbytes]
        room = sum(part.nbytes for part in views)
        with self._receiving:
            self._skip(deadline_s)
            size = self._next_length(deadline_s)
            if size > room:
                with suppress(base.DeadlinePassed):  # the next call skips the rest
                    self._skip(deadline_s)
                raise base.MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room} bytes")
            self._fill(_first_bytes(views, size), deadline_s)
            self._traffic.received_messages += 1
            self._traffic.received_bytes += size
        return size

    def close(self) -> None:
        self._end_with(f"the connection to {self.peer} is closed")
        with self._sending, self._receiving:  # the kernel may reuse the descriptor: no call may still use it
            self._socket.close()

    def detach(self) -> socket.socket:
        """Close this connection and return its socket, blocking and without a timeout, for another protocol.

        Bytes after the last received message are lost, so the peer must not send meanwhile. Raises Closed.
        """
        with self._sending, self._receiving:
            if self._socket.fileno() < 0:
                raise base.Closed(self._ended)
            self._ended = self._ended or f"the connection to {self.peer} was handed to another protocol"
            detached = socket.socket(fileno=self._socket.detach())
        set_timeouts(detached, 0)
        return detached

    def _end_with(self, why: str) -> None:
        self._ended = self._ended or why
        with suppress(OSError):  # closed already, by this end or the peer
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes callers in the kernel, at both ends

    def _push(self) -> None:
        """Send as many pending bytes as the kernel takes without waiting, unless another thread is sending."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            while self._pending:
                self._write_some(self._pending[0])
                if self._pending[0].size:
                    return
                self._pending.popleft()
        finally:
            self._sending.release()

    def _write_some(self, pending: PendingSend) -> None:
        try:
            pending.advance(self._socket.sendmsg(pending.rest[:MAX_PARTS], (), _NO_WAIT))
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._lost(error) from error

    def _write_first(self, deadline_s: float) -> None:
        self._write(self._pending[0], deadline_s, begun=True)
        self._pending.popleft()

    def _write(self, message: PendingSend, deadline_s: float, begun: bool = False) -> None:
        """Send a whole message with the lock held. A message with `begun` set cannot be withdrawn."""
        whole = message.size
        try:
            while message.size:
                near = deadline_s - time.monotonic() < TICK_S
                try:
                    sent = self._socket.sendmsg(message.rest[:MAX_PARTS], (), _NO_WAIT if near else socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    wait(self._writable, near, deadline_s, f"{self.peer} did not take a message in time")
                    continue
                message.advance(sent)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException as error:
            if begun or message.size < whole or not isinstance(error, base.DeadlinePassed):
                # the peer cannot find the start of the next message
                self._end_with(f"a message to {self.peer} was cut off: {error}")
            raise

    def _next_length(self, deadline_s: float) -> int:
        """Receive the length of the next message, which becomes the current message."""
        while self._end - self._start < LENGTH.size:
            if self._start == self._end:
                self._start = self._end = 0
            elif STAGE_BYTES - self._start < LENGTH.size:
                count = self._end - self._start
                self._stage[:count] = bytes(self._stage[self._start : self._end])
                self._start, self._end = 0, count
            spins = SPINS if self._yields.allowed() else 0
            self._end += self._receive_some([self._stage[self._end :]], 0, deadline_s, spins)
        (size,) = LENGTH.unpack_from(self._stage, self._start)
        self._start += LENGTH.size
        self._left = int(size)
        return self._left

    def _fill(self, views: list[memoryview], deadline_s: float) -> None:
        """Deliver the current message into views of its total length; modifies the list."""
        while self._left:
            if self._start < self._end:
                got = min(self._end - self._start, views[0].nbytes)
                views[0][:got] = self._stage[self._start : self._start + got]
                self._start += got
            else:
                got = self._receive_some(views[:MAX_PARTS], socket.MSG_WAITALL, deadline_s)
            self._left -= got
            advance(views, got)

    def _skip(self, deadline_s: float) -> None:
        """Discard the rest of a message that was rejected or came too late."""
        while self._left:
            if self._start == self._end:
                self._start, self._end = 0, self._receive_some([self._stage], 0, deadline_s)
            skipped = min(self._left, self._end - self._start)
            self._start += skipped
            self._left -= skipped

    def _receive_some(self, views: list[memoryview], flags: int, deadline_s: float, spins: int = 0) -> int:
        """Receive at least one byte into non-empty views."""
        while True:
            if self._pending:
                self._push()
            near = deadline_s - time.monotonic() < TICK_S
            both = bool(self._pending)
            try:
                used_flags = flags | socket.MSG_DONTWAIT if near or both or spins > 0 else flags
                if len(views) == 1:
                    got = self._socket.recv_into(views[0], 0, used_flags)
                else:
                    got = self._socket.recvmsg_into(views, 0, used_flags)[0]
            except BlockingIOError:
                if spins:
                    spins = spins - 1 if self._yields.once() else 0
                else:
                    ready = self._either if both else self._readable
                    wait(ready, near or both, deadline_s, f"{self.peer} sent no message in time")
                continue
            except OSError as error:
                raise self._lost(error) from error
            if not got:
                raise self._lost()
            return got

    def _lost(self, error: OSError | None = None) -> base.ChannelError:
        """Return the exception for a socket that has failed or ended."""
        if self._ended:
            return base.Closed(self._ended)
        if error is not None:
            return base.PeerClosed(f"{self.peer} is gone: {error.strerror}")
        if self._left or self._start < self._end:
            return base.PeerClosed(f"{self.peer} closed the connection in the middle of a message")
        return base.PeerClosed(f"{self.peer} has closed the connection")


@dataclass(slots=True, eq=False)
class PendingSend:
    """Message whose last `size` bytes, in `rest`, the kernel has not taken yet."""

    rest: list[memoryview]
    size: int

    def advance(self, count: int) -> None:
        """Remove `count` bytes that the kernel has taken."""
        self.size -= count
        advance(self.rest, count)


def advance(views: list[memoryview], count: int) -> None:
    """Remove the first `count` bytes from a list of views."""
    first = 0
    while first < len(views) and count >= views[first].nbytes:
        count -= views[first].nbytes
        first += 1
    del views[:first]
    if count:
        views[0] = views[0][count:]


def wait(ready: select.poll, polls: bool, deadline_s: float, late: str) -> None:
    """Poll a socket that is not ready, for at most TICK_S, if `polls`; otherwise the last call has waited already.

    Raises DeadlinePassed with the message `late`.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise base.DeadlinePassed(late)
    if polls:
        ready.poll(min(left_s, TICK_S) * 1000)


def _set_options(connected: socket.socket) -> None:
    """Set timeouts and keepalive. The kernel tunes its buffers itself, unless the peer is near."""
    if _is_near(connected):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_SEND_BYTES)
    connected.settimeout(None)
    set_timeouts(connected, TICK_S)
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
    ):
        connected.setsockopt(level, option, value)


def set_timeouts(connected: socket.socket, seconds: float) -> None:
    """Set the longest time that a call blocks in the kernel; 0 for no limit."""
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6)))


def _is_near(connected: socket.socket) -> bool:
    if connected.getsockname()[0] == connected.getpeername()[0]:
        return False  # loopback
    info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT_AT + _MIN_RTT.size)
    return len(info) > _MIN_RTT_AT and _MIN_RTT.unpack_from(info, _MIN_RTT_AT)[0] < NEAR_US


def _first_bytes(views: list[memoryview], size: int) -> list[memoryview]:
    """Return the views cut to a total length of `size`."""
    chosen = []
    for part in views:
        if not size:
            break
        chosen.append(part[:size] if part.nbytes > size else part)
        size -= chosen[-1].nbytes
    return chosen
