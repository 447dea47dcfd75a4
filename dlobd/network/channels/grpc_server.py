"""Where others connect to by gRPC: a server on one address, which lives as long as its listener or a connection of it.

Who does not prove that it knows the run's secret is refused, with one line on stderr; the server goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Protocol

import grpc

from dlobd.errors import SetupError
from dlobd.network.channels import authentication
from dlobd.network.channels.base import Closed, DeadlinePassed

SERVICE = "dlobd.Channel"

GRACE_S = 1.0
"""For calls that end by themselves once their connections are closed."""

MAX_GREETED = 256
"""Who was greeted and has not joined; the oldest are forgotten, and have to ask again."""

UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))

KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A host that has vanished is noticed after 30 s, as by library sockets."""

SERVER = (
    *UNLIMITED,
    *KEEPALIVE,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # its default, 5 minutes, takes keepalive for abuse
    ("grpc.http2.max_ping_strikes", 0),
)


class ServedConnection(Protocol):
    """The end of a connection that was accepted."""

    peer: str

    def close(self) -> None:
        """See the contract."""


class GrpcListener:
    """See `dlobd.network.channels.base.Listener`.

    Args:
        host: the IPv4 address to listen on, never all of them.
        scheme: the first word of the address.
        welcome: makes a connection of its peer's name, `host` and this.
        methods: by name, a maker of gRPC's handlers; it is given what finds the connection of a call.

    Raises:
        SetupError: it cannot listen there.
    """

    def __init__(
        self,
        host: str,
        scheme: str,
        secret: bytes,
        welcome: Callable[[str, str, GrpcListener], ServedConnection],
        methods: Mapping[str, Callable[[Callable[[Any], Any]], Any]],
    ) -> None:
        self._host = host
        self._secret = secret
        self._welcome = welcome
        self._greeted: dict[str, bytes] = {}
        self._connections: dict[str, ServedConnection] = {}
        self._open: set[int] = set()
        self._arrived: deque[ServedConnection] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._stopping = threading.Lock()
        self._threads = DaemonThreads(f"dlobd-{scheme}")
        self._server: Any = grpc.server(self._threads, options=SERVER)
        handlers = {"Hello": grpc.unary_unary_rpc_method_handler(self._hello)}
        handlers["Join"] = grpc.unary_unary_rpc_method_handler(self._join)
        handlers |= {name: make(self._of) for name, make in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            port = self._server.add_insecure_port(f"{host}:0")
        except RuntimeError as error:
            raise SetupError(f"gRPC cannot listen on {host}: {error}.", "choose another interface") from error
        self.address = f"{scheme}:{host}:{port}"
        self._server.start()

    def accept(self, deadline_s: float) -> Any:
        """See the contract."""
        with self._changed:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not self._changed.wait_for(lambda: self._closed or self._arrived, left_s):
                raise DeadlinePassed(f"nobody came to {self.address} in time")
            if self._closed:
                raise Closed(f"{self.address} is closed")
            return self._arrived.popleft()

    def close(self) -> None:
        """See the contract. The server goes on while connections live; it answers nobody else."""
        with self._changed:
            self._closed = True
            arrived = list(self._arrived)
            self._arrived.clear()
            self._changed.notify_all()
        for connection in arrived:
            connection.close()  # who has connected, and was never accepted, is not left to wait
        self._stop_if_idle()

    def released(self, connection: ServedConnection) -> None:
        """A connection of this listener was closed."""
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

    def _hello(self, request: bytes, context: Any) -> bytes:
        greeted = authentication.greeting()
        with self._changed:
            if not self._closed:
                self._greeted[context.peer()] = greeted
                if len(self._greeted) > MAX_GREETED:
                    del self._greeted[next(iter(self._greeted))]
                return greeted
        context.abort(grpc.StatusCode.UNAVAILABLE, "it does not listen any more")
        raise AssertionError("abort raises")

    def _join(self, request: bytes, context: Any) -> bytes:
        with self._changed:
            greeted = self._greeted.pop(context.peer(), None)
        if greeted is None or len(request) != authentication.HELLO_BYTES or not authentication.begins_well(request):
            self._refuse(context, "it does not speak as a channel of dlobd")
        assert greeted is not None  # `_refuse` raises
        answer = authentication.answer(self._secret, greeted, request)
        if answer is None:
            authentication.report(self.address, _name(context), "it does not know the run's secret")
            return authentication.REFUSAL
        connection = self._welcome(_name(context), self._host, self)
        with self._changed:
            self._connections[context.peer()] = connection
            if not self._closed:
                self._open.add(id(connection))
                self._arrived.append(connection)
                self._changed.notify_all()
                return answer
        context.abort(grpc.StatusCode.UNAVAILABLE, "it does not listen any more")
        raise AssertionError("abort raises")

    def _of(self, context: Any) -> Any:
        """The connection by which a call has come."""
        with self._changed:
            connection = self._connections.get(context.peer())
        if connection is None:
            self._refuse(context, "it was not authenticated")
        return connection

    def _refuse(self, context: Any, why: str) -> None:
        authentication.report(self.address, _name(context), why)
        context.abort(grpc.StatusCode.UNAUTHENTICATED, why)


class DaemonThreads(Executor):
    """Threads for gRPC's handlers, as many as there are calls at once, which none must wait for.

    Those of `concurrent.futures` are joined before Python ends: a rank that fails would wait for its peers' calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None]
        self._work = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `concurrent.futures.Executor` has it."""
        future: Future[Any] = Future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # before anybody can join it
                self._threads.append(thread)
        self._work.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads; what runs is waited for, for GRACE_S."""
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
            except BaseException as error:  # noqa: BLE001 - it is for whoever asks the future
                future.set_exception(error)
            del future, function, args, kwargs, work
            with self._lock:
                self._idle += 1


def _name(context: Any) -> str:
    """Host and port of who calls; gRPC has `ipv4:` before it."""
    return str(context.peer()).partition(":")[2]
