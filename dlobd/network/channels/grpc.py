"""gRPC by grpcio, with one call per message and without protocol buffers: messages are bytes.

    Send       call of the connecting end that carries a message; it returns once the other end has taken the message
    Receive    call of the connecting end that is answered with the next message of the other end. One such call is
               always pending, so the connecting end prefetches at most one message
    Attend     call that lasts as long as the connection; its end signals that the connecting end has left

gRPC's Python interface takes and returns `bytes`: a sender copies all data of other types to `bytes`, gRPC's core
copies those into its slices, and the receiver joins the slices and copies them into its buffers. These copies are the
cost of gRPC in Python, which this library measures.

Each connection is a TCP connection of its own. Both ends prove by two calls (Hello, Join) that they have the run's
secret (`dlobd.network.channels.authentication`). Later calls must come over the same TCP connection, which gRPC
identifies by the address and port of the caller. Nothing is encrypted. A client that reaches the port can make gRPC
buffer one message before it is rejected. No proxy is used, no name is resolved, and no second server shares the port.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, ClassVar

import grpc

from dlobd.errors import SetupError
from dlobd.network import interfaces
from dlobd.network.channels import authentication, base
from dlobd.network.channels.ip import IpChannel, local_address, parse_address, source_towards, traffic_over

LIBRARY = "grpc"
SERVICE = "dlobd.Channel"
MAX_BYTES = 2**31 - 1  # maximum size of a message: gRPC's length limits are signed 32-bit numbers
RETRY_S = 0.05  # interval between attempts to reach a listener that does not exist yet, or is closing
MAX_TIMEOUT_S = 10.0 * 365 * 86400  # largest timeout: gRPC's time type overflows before infinity
GRACE_S = 1.0  # time for calls to end by themselves after their connections were closed

MAX_GREETED = 256
"""Maximum number of clients between Hello and Join; the oldest are dropped and must repeat their Hello."""

UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))

KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A vanished host is detected after 30 s, as in library `sockets`."""

CLIENT = (
    *UNLIMITED,
    *KEEPALIVE,
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # otherwise grpc.Channel objects share TCP connections
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)

SERVER = (
    *UNLIMITED,
    *KEEPALIVE,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # the default forbids pings at this interval
    ("grpc.http2.max_ping_strikes", 0),
)


class GrpcChannel(IpChannel):
    """Channel of library `grpc`. `connect` fails if the route needs another source address, which gRPC cannot set."""

    library = LIBRARY
    capabilities: ClassVar[base.Capabilities] = base.Capabilities()

    def __init__(self, transport: str = "tcp", device: str = "", secret: bytes = b"") -> None:
        super().__init__(transport, device, secret)
        self._dialling: set[grpc.Channel] = set()

    def listen(self, device: str = "") -> GrpcListener:
        """Listen on an interface. Raises UsageError, SetupError: the interface cannot be used."""
        self._check_open()
        host = local_address(self._transport, device or self._device)
        listener = GrpcListener(host, self._secret, self._accept)
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> GrpcConnection:
        """Connect. Raises Refused: the other end lacks the secret; SetupError: the route uses another interface."""
        host, port = parse_address(LIBRARY, address)
        source_towards(self._transport, self._device, host)
        traffic = traffic_over(interfaces.towards(host))
        self._check_open()
        channel = grpc.insecure_channel(f"ipv4:{host}:{port}", CLIENT)
        self._dialling.add(channel)
        try:
            self._authenticate(channel, address, deadline_s)
            connection = _ClientConnection(channel, f"{host}:{port}", traffic)
        except BaseException as error:
            channel.close()
            if self._closed.is_set() and isinstance(error, base.ChannelError | grpc.RpcError | ValueError):
                raise base.Closed(f"this {LIBRARY} channel is closed") from error
            raise
        finally:
            self._dialling.discard(channel)
        self._keep(connection, traffic)
        return connection

    def close(self) -> None:
        self._closed.set()
        for channel in list(self._dialling):
            channel.close()
        super().close()

    def _authenticate(self, channel: grpc.Channel, address: str, deadline_s: float) -> None:
        say_hello, join = channel.unary_unary(f"/{SERVICE}/Hello"), channel.unary_unary(f"/{SERVICE}/Join")
        while True:
            self._check_open()
            try:
                greeting = say_hello(b"", timeout=_timeout_s(deadline_s), wait_for_ready=True)
                hello = authentication.hello(self._secret, greeting)
                answer = join(hello, timeout=_timeout_s(deadline_s))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED or deadline_s <= time.monotonic():
                    raise base.DeadlinePassed(f"no listener at {address} answered in time") from error
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise authentication.Refused(f"{address} refused this end: {error.details()}") from error
                self._closed.wait(min(RETRY_S, _timeout_s(deadline_s)))
                continue
            authentication.check(self._secret, greeting, hello, answer, address)
            return

    def _accept(self, peer: str, host: str, listener: GrpcListener) -> _ServerConnection:
        traffic = traffic_over(interfaces.carrying(host, peer.rpartition(":")[0]))
        connection = _ServerConnection(peer, traffic, listener)
        self._traffic.append(traffic)
        self._connections.append(connection)
        return connection


class GrpcListener(base.AcceptQueue["_ServerConnection"]):
    """Server on one address. It lives until the listener and all its connections are closed.

    A client that does not prove that it has the run's secret is rejected with one line on stderr.

    Args:
        host: the IPv4 address to listen on; never the wildcard address.
        accept: makes a connection from the peer's name, `host` and this listener.

    Raises SetupError: the address cannot be bound.
    """

    def __init__(self, host: str, secret: bytes, accept: Callable[[str, str, GrpcListener], _ServerConnection]) -> None:
        super().__init__()
        self._host = host
        self._secret = secret
        self._accept = accept
        self._greeted: dict[str, bytes] = {}
        self._connections: dict[str, _ServerConnection] = {}
        self._open: set[int] = set()
        self._stopping = threading.Lock()
        self._threads = DaemonThreads(f"dlobd-{LIBRARY}")
        self._server: Any = grpc.server(self._threads, options=SERVER)
        methods = {
            "Hello": self._hello,
            "Join": self._join,
            "Send": self._call(_ServerConnection.send_call),
            "Receive": self._call(_ServerConnection.receive_call),
            "Attend": self._call(_ServerConnection.attend_call),
        }
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            port = self._server.add_insecure_port(f"{host}:0")
        except RuntimeError as error:
            raise SetupError(f"gRPC cannot listen on {host}: {error}.", "choose another interface") from error
        self.address = f"{LIBRARY}:{host}:{port}"
        self._server.start()

    def close(self) -> None:
        """Stop accepting. The server stops once its last connection is closed."""
        with self._changed:
            self._closed = True
            arrived = list(self._arrived)
            self._arrived.clear()
            self._changed.notify_all()
        for connection in arrived:
            connection.close()  # a peer that was never accepted must not wait
        self._stop_if_idle()

    def release(self, connection: GrpcConnection) -> None:
        with self._changed:
            self._open.discard(id(connection))
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        with self._stopping:
            with self._changed:
                if not self._closed or self._open:
                    return
            self._server.stop(GRACE_S).wait()
            self._threads.shutdown()

    def _hello(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        greeting = authentication.greeting()
        with self._changed:
            if not self._closed:
                self._greeted[context.peer()] = greeting
                if len(self._greeted) > MAX_GREETED:
                    del self._greeted[next(iter(self._greeted))]
                return greeting
        raise _abort(context, "the listener is closed")

    def _join(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with self._changed:
            greeting = self._greeted.pop(context.peer(), None)
        if greeting is None or len(request) != authentication.HELLO_BYTES or not authentication.begins_well(request):
            raise self._reject(context, "it does not speak the protocol of dlobd's channels")
        answer = authentication.answer(self._secret, greeting, request)
        if answer is None:
            authentication.report(self.address, _peer_name(context), "it does not have the run's secret")
            return authentication.REFUSAL
        connection = self._accept(_peer_name(context), self._host, self)
        with self._changed:
            self._connections[context.peer()] = connection
            if not self._closed:
                self._open.add(id(connection))
                self._deliver(connection)
                return answer
        raise _abort(context, "the listener is closed")

    def _call(self, method: Callable[[_ServerConnection, bytes, Any], bytes]) -> Callable[[bytes, Any], bytes]:

        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            with self._changed:
                connection = self._connections.get(context.peer())
            if connection is None:
                raise self._reject(context, "it was not authenticated")
            try:
                return method(connection, request, context)
            except base.ChannelError as error:
                raise _abort(context, "it has closed the connection") from error

        return handle

    def _reject(self, context: grpc.ServicerContext, why: str) -> Exception:
        authentication.report(self.address, _peer_name(context), why)
        return _abort(context, why, grpc.StatusCode.UNAUTHENTICATED)


class GrpcConnection(base.Connection):
    """One end of a connection. Subclasses send and receive bytes objects."""

    library = LIBRARY

    def __init__(self, peer: str, traffic: base.Traffic) -> None:
        self.peer = peer
        self._traffic = traffic

    def send_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> None:
        """Join and send the parts. Raises NotSupported for a message larger than MAX_BYTES."""
        if len(parts) == 1 and isinstance(parts[0], bytes):
            message = parts[0]
        else:
            message = b"".join([base.view(part) for part in parts])
        if len(message) > MAX_BYTES:
            raise base.NotSupported(f"gRPC cannot carry a message of {len(message)} bytes; the limit is {MAX_BYTES}")
        self._put(message, deadline_s)
        self._traffic.sent_messages += 1
        self._traffic.sent_bytes += len(message)

    def recv_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> int:
        into = [base.view(part) for part in parts]
        message = self._next(deadline_s)
        room = sum(part.nbytes for part in into)
        if len(message) > room:
            size = len(message)
            raise base.MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room} bytes")
        left = memoryview(message)
        for part in into:
            size = min(part.nbytes, left.nbytes)
            part[:size] = left[:size]
            left = left[size:]
        self._traffic.received_messages += 1
        self._traffic.received_bytes += len(message)
        return len(message)

    @abstractmethod
    def _put(self, message: bytes, deadline_s: float) -> None: ...

    @abstractmethod
    def _next(self, deadline_s: float) -> bytes: ...


class _ClientConnection(GrpcConnection):
    """Connecting end, which makes the calls."""

    def __init__(self, channel: Any, peer: str, traffic: base.Traffic) -> None:
        super().__init__(peer, traffic)
        self._channel = channel
        self._send = channel.unary_unary(f"/{SERVICE}/Send")
        self._receive = channel.unary_unary(f"/{SERVICE}/Receive")
        self._closed = False
        self._attending: Any = channel.unary_unary(f"/{SERVICE}/Attend").future(b"")
        self._coming: Any = self._receive.future(b"")

    def close(self) -> None:
        # gRPC cancels all pending calls
        self._closed = True
        self._channel.close()

    def _put(self, message: bytes, deadline_s: float) -> None:
        try:
            self._send(message, timeout=_timeout_s(deadline_s))
        except (grpc.RpcError, ValueError) as error:  # a closed grpc.Channel raises ValueError
            raise self._failed(error, "did not take a message") from error

    def _next(self, deadline_s: float) -> bytes:
        try:
            message: bytes = self._coming.result(_timeout_s(deadline_s))
        except grpc.FutureTimeoutError as error:
            raise base.DeadlinePassed(f"{self.peer} sent no message in time") from error
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            raise self._failed(error, "sent no message") from error
        try:
            self._coming = self._receive.future(b"")
        except ValueError:  # closed concurrently: the next call reports it
            self._coming = self._attending
        return message

    def _failed(self, error: BaseException, what: str) -> base.ChannelError:
        if self._closed:
            return base.Closed(f"the connection to {self.peer} is closed")
        if isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return base.DeadlinePassed(f"{self.peer} {what} in time")
        details = error.details() if isinstance(error, grpc.RpcError) and hasattr(error, "details") else ""
        return base.PeerClosed(
            f"{self.peer} is gone: {' '.join(details.split()) if details else 'the connection has ended'}"
        )


class _ServerConnection(GrpcConnection):
    """Accepting end, which answers the calls."""

    def __init__(self, peer: str, traffic: base.Traffic, listener: GrpcListener) -> None:
        super().__init__(peer, traffic)
        self._listener = listener
        self._inbox = Mailbox(peer)
        self._outbox = Mailbox(peer)
        self._over = threading.Event()

    def close(self) -> None:
        closed = base.Closed(f"the connection to {self.peer} is closed")
        self._inbox.end(closed, at_once=True)
        self._outbox.end(closed, at_once=True)
        self._over.set()
        self._listener.release(self)

    def send_call(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Take a message of the peer; drop it if its deadline has passed at the peer."""
        if context.add_callback(self._inbox.recheck):
            self._inbox.put(request, context.is_active)
        return b""

    def receive_call(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return self._outbox.take()

    def attend_call(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if context.add_callback(self._peer_left):
            self._over.wait()
        else:
            self._peer_left()
        return b""

    def _put(self, message: bytes, deadline_s: float) -> None:
        self._outbox.hand_over(message, deadline_s)

    def _next(self, deadline_s: float) -> bytes:
        return self._inbox.take(deadline_s)

    def _peer_left(self) -> None:
        left = base.PeerClosed(f"{self.peer} has closed the connection")
        self._inbox.end(left)
        self._outbox.end(left)
        self._over.set()


class Mailbox:
    """Slot for one message between a thread of gRPC and a thread that sends or receives. `end` wakes both threads."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._changed = threading.Condition()
        self._message: bytes | None = None
        self._put = self._taken = 0  # counts of messages
        self._ended: base.ChannelError | None = None

    def put(self, message: bytes, wanted: Callable[[], bool]) -> None:
        """Put a message once the slot is free, or drop it once `wanted` is False. Raises the error given to `end`."""
        with self._changed:
            self._wait(lambda: self._message is None or not wanted(), None)
            self._check()
            if wanted():
                self._place(message)

    def hand_over(self, message: bytes, deadline_s: float) -> None:
        """Put a message and wait until it is taken; withdraw it at the deadline. Raises the error given to `end`."""
        with self._changed:
            self._check()
            number = self._place(message)
            try:
                self._wait(lambda: self._taken >= number, deadline_s)
            finally:
                if self._taken < number:
                    self._message = None
            if self._taken < number:
                self._check()

    def take(self, deadline_s: float | None = None) -> bytes:
        """Wait for a message and take it, also after `end`. If there is no message, raise the error given to `end`."""
        with self._changed:
            self._wait(lambda: self._message is not None, deadline_s)
            message, self._message = self._message, None
            if message is None:
                self._check()
                raise AssertionError("the wait ended without a message and without an error")
            self._taken = self._put
            self._changed.notify_all()
            return message

    def end(self, error: base.ChannelError, at_once: bool = False) -> None:
        """Wake all waiting threads with an error; `at_once` drops the message in the slot and an earlier error."""
        with self._changed:
            if at_once:
                self._message = None
            if at_once or self._ended is None:
                self._ended = error
            self._changed.notify_all()

    def recheck(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _place(self, message: bytes) -> int:
        self._message = message
        self._put += 1
        self._changed.notify_all()
        return self._put

    def _check(self) -> None:
        if self._ended is not None:
            # a new exception per caller: an exception that is raised twice has both tracebacks
            raise type(self._ended)(str(self._ended))

    def _wait(self, done: Callable[[], bool], deadline_s: float | None) -> None:
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        if not self._changed.wait_for(lambda: done() or self._ended is not None, left_s):
            raise base.DeadlinePassed(f"{self._peer} neither took nor sent a message in time")


class DaemonThreads(Executor):
    """Unbounded pool of daemon threads for gRPC's handlers, which may wait for each other.

    Python joins the threads of `concurrent.futures` at exit: a failing rank would wait for the calls of its peers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None]
        self._work = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # `shutdown` joins only threads that were started
                self._threads.append(thread)
        self._work.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._work.put(None)
        until_s = time.monotonic() + GRACE_S
        for thread in threads if wait else ():
            thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, function, args, kwargs = work
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the caller of the future gets it
                future.set_exception(error)
            del future, function, args, kwargs, work
            with self._lock:
                self._idle += 1


def _timeout_s(deadline_s: float) -> float:
    return max(0.0, min(deadline_s - time.monotonic(), MAX_TIMEOUT_S))


def _abort(context: grpc.ServicerContext, why: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> Exception:
    """Abort a call. It never returns, because gRPC raises an exception."""
    context.abort(code, why)
    return AssertionError("abort raises")


def _peer_name(context: grpc.ServicerContext) -> str:
    """Return host:port of the caller; gRPC prefixes it with `ipv4:`."""
    return str(context.peer()).partition(":")[2]
