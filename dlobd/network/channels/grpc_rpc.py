"""gRPC by grpcio, without protocol buffers: messages are bytes, which nothing serialises. What both of its ways share.

    grpc          a call per message                            dlobd.network.channels.grpc_unary
    grpc-stream   one call per connection, a stream each way    dlobd.network.channels.grpc_stream

gRPC's Python interface takes and gives `bytes`, so a message is copied, and memory of its size is allocated, more often
than elsewhere. A sender copies what is not `bytes` already (several parts are joined by that), and gRPC's core copies
that once more into its own slices; at the other end the core's slices are joined into `bytes`, which are copied into
the receiver's buffers. That is what gRPC costs in Python, and the reason why it is measured beside the others.

Each connection is a TCP connection of its own, made by the end that connects; who has listened answers on it. Both ends
prove by two calls that they know the run's secret (`dlobd.network.channels.authentication`), and whatever else is
called must come by the same TCP connection: gRPC names it by the address and port of the caller. Nothing is encrypted.
Whoever reaches the port can make gRPC hold one message before it is refused. Bytes that are no HTTP/2 gRPC refuses
itself, and says so to nobody.

No proxy of the environment is used, no name is looked up, and no second server can share the port.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import grpc

from dlobd.errors import UsageError
from dlobd.network import interfaces
from dlobd.network.channels import authentication
from dlobd.network.channels.base import (
    Buffer,
    Capabilities,
    ChannelError,
    Closed,
    DeadlinePassed,
    MessageTooLong,
    NotSupported,
    PeerClosed,
    Traffic,
    view,
)
from dlobd.network.channels.grpc_server import KEEPALIVE, SERVICE, UNLIMITED, GrpcListener, ServedConnection
from dlobd.network.channels.ip import counts_of, local_address, parsed, source_towards
from dlobd.network.channels.two_sided import Counts, TwoSided, traffic

MAX_BYTES = 2**31 - 1
"""Of one message: gRPC's limits of lengths are signed numbers of 32 bits."""

LINGER_S = 1.0
"""How long `close` waits for what was sent to be on its way, where the peer does not take it."""

RETRY_S = 0.05
"""Between two tries to be greeted by a listener that is being closed, or was not there yet."""

FOR_EVER_S = 10.0 * 365 * 86400
"""gRPC's times end before infinity."""

CLIENT = (
    *UNLIMITED,
    *KEEPALIVE,
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a TCP connection for each grpc.Channel: otherwise they share
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)


class GrpcConnection(TwoSided):
    """One end, of either way. `_give` and `_next` carry bytes objects."""

    peer: str
    _counts: Counts

    def send(self, message: Buffer, deadline_s: float) -> None:
        """See the contract. Raises NotSupported for a message over MAX_BYTES."""
        self.send_parts((message,), deadline_s)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """See the contract."""
        return self.recv_parts((into,), deadline_s)

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """See the contract; the parts are joined."""
        if len(parts) == 1 and isinstance(parts[0], bytes):
            message = parts[0]
        else:
            message = b"".join([view(part) for part in parts])
        if len(message) > MAX_BYTES:
            raise NotSupported(f"gRPC cannot carry a message of {len(message)} bytes; its limit is {MAX_BYTES}")
        self._give(message, deadline_s)
        self._counts.sent_messages += 1
        self._counts.sent_bytes += len(message)

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """See the contract."""
        into = [view(part) for part in parts]
        message = self._next(deadline_s)
        room = sum(part.nbytes for part in into)
        if len(message) > room:
            raise MessageTooLong(f"a message of {len(message)} bytes from {self.peer} does not fit into {room}")
        left = memoryview(message)
        for part in into:
            size = min(part.nbytes, left.nbytes)
            part[:size] = left[:size]
            left = left[size:]
        self._counts.received_messages += 1
        self._counts.received_bytes += len(message)
        return len(message)

    def close(self) -> None:
        """See the contract."""
        raise NotImplementedError

    def _give(self, message: bytes, deadline_s: float) -> None:
        raise NotImplementedError

    def _next(self, deadline_s: float) -> bytes:
        raise NotImplementedError


class GrpcChannel:
    """See `dlobd.network.channels.base.Channel`. Its two ways say how connections are made.

    Args:
        transport: tcp or ipoib.
        device: the interface that carries it; empty for loopback, and for whatever the routes say when it connects.
            gRPC cannot be told a source address: where the routes lead over another interface, connecting is refused.
        secret: of the run; empty where none is needed.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(iovec=False, one_sided=False, processes=True, hosts=True)
    transports: ClassVar[tuple[str, ...]] = ("tcp", "ipoib")
    library: ClassVar[str]

    def __init__(self, transport: str = "tcp", device: str = "", secret: bytes = b"") -> None:
        if transport not in self.transports:
            remedy = f"it carries {' and '.join(self.transports)}"
            raise UsageError(f"Library {self.library} cannot carry {transport!r}.", remedy)
        self._transport = transport
        self._device = device
        self._secret = secret
        self._listeners: list[GrpcListener] = []
        self._connections: list[GrpcConnection] = []
        self._dialling: set[Any] = set()
        self._counts: list[Counts] = []
        self._closed = threading.Event()

    def listen(self, device: str = "") -> GrpcListener:
        """See the contract. Raises UsageError or SetupError where the interface cannot be used."""
        self._check_open()
        host = local_address(self._transport, device or self._device)
        listener = GrpcListener(host, self.library, self._secret, self._welcome, self._methods())
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, deadline_s: float) -> GrpcConnection:
        """See the contract. Raises also `authentication.Refused`, and SetupError where the way does not lead over the
        interface of this channel."""
        host, port = parsed(self.library, address)
        source_towards(self._transport, self._device, host)
        counts = counts_of(interfaces.towards(host))
        self._check_open()
        channel = grpc.insecure_channel(f"ipv4:{host}:{port}", CLIENT)
        self._dialling.add(channel)
        try:
            self._join(channel, address, deadline_s)
            connection = self._dialled(channel, f"{host}:{port}", counts)
        except BaseException as error:
            channel.close()
            if self._closed.is_set() and isinstance(error, ChannelError | grpc.RpcError | ValueError):
                raise Closed(f"this channel of {self.library} is closed") from error
            raise
        finally:
            self._dialling.discard(channel)
        self._keep(connection, counts)
        if self._closed.is_set():
            connection.close()  # whoever closed this channel may not have seen it
        return connection

    def evidence(self) -> Traffic:
        """See the contract."""
        return traffic(self._counts)

    def close(self) -> None:
        """See the contract."""
        self._closed.set()
        for channel in list(self._dialling):
            channel.close()
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"this channel of {self.library} is closed")

    def _join(self, channel: Any, address: str, deadline_s: float) -> None:
        """Greets, and is authenticated."""
        say_hello, join = channel.unary_unary(f"/{SERVICE}/Hello"), channel.unary_unary(f"/{SERVICE}/Join")
        while True:
            self._check_open()
            try:
                greeted = say_hello(b"", timeout=timeout_s(deadline_s), wait_for_ready=True)
                said = authentication.hello(self._secret, greeted)
                answer = join(said, timeout=timeout_s(deadline_s))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED or deadline_s <= time.monotonic():
                    raise DeadlinePassed(f"nobody listens at {address} in time") from error
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise authentication.Refused(f"{address} has refused this end: {error.details()}") from error
                self._closed.wait(min(RETRY_S, timeout_s(deadline_s)))
                continue
            authentication.check(self._secret, greeted, said, answer, address)
            return

    def _welcome(self, peer: str, host: str, listener: GrpcListener) -> ServedConnection:
        """The end of a connection that has come to a listener at the address `host`."""
        counts = counts_of(interfaces.carrying(host, peer.rpartition(":")[0]))
        connection = self._served(peer, counts, listener)
        self._keep(connection, counts)
        return connection

    def _keep(self, connection: Any, counts: Counts) -> None:
        """Counted and closed with this channel."""
        self._counts.append(counts)
        self._connections.append(connection)

    def _methods(self) -> dict[str, Any]:
        """Beside those by which ends join: a function of a connection, and gRPC's handler of the calls to it."""
        raise NotImplementedError

    def _served(self, peer: str, counts: Counts, listener: GrpcListener) -> ServedConnection:
        raise NotImplementedError

    def _dialled(self, channel: Any, peer: str, counts: Counts) -> GrpcConnection:
        raise NotImplementedError


def timeout_s(deadline_s: float) -> float:
    """As gRPC takes it."""
    return max(0.0, min(deadline_s - time.monotonic(), FOR_EVER_S))


def gone(peer: str, error: BaseException) -> PeerClosed:
    """What to raise for a call that gRPC has ended."""
    details = error.details() if isinstance(error, grpc.RpcError) and hasattr(error, "details") else ""
    return PeerClosed(f"{peer} is gone: {' '.join(details.split()) if details else 'the connection has ended'}")
