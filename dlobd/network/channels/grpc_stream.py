"""gRPC with one call per connection, whose two streams carry the messages, one each.

At either end a thread of the connection reads the stream, since gRPC's Python interface knows no deadline there, and
hands each message over to whoever receives: one message at most lies ready before it is asked for. `send` returns once
gRPC has taken the message, whose flow control stops a sender that is ahead of its receiver.

See `dlobd.network.channels.grpc_rpc` for what is copied, and for who may call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import grpc

from dlobd.network.channels.base import ChannelError, Closed, PeerClosed
from dlobd.network.channels.grpc_rpc import LINGER_S, GrpcChannel, GrpcConnection
from dlobd.network.channels.grpc_server import SERVICE, GrpcListener
from dlobd.network.channels.mailbox import Mailbox
from dlobd.network.channels.two_sided import Counts

LIBRARY = "grpc-stream"


class GrpcStreamChannel(GrpcChannel):
    """See `dlobd.network.channels.grpc_rpc.GrpcChannel`."""

    library: ClassVar[str] = LIBRARY

    def _methods(self) -> dict[str, Any]:
        return {"Exchange": _handler}

    def _served(self, peer: str, counts: Counts, listener: GrpcListener) -> _Served:
        return _Served(peer, counts, listener)

    def _dialled(self, channel: Any, peer: str, counts: Counts) -> GrpcConnection:
        return _Dialled(channel, peer, counts)


class _Stream(GrpcConnection):
    """What the two ends share: their streams look alike."""

    library = LIBRARY

    def __init__(self, peer: str, counts: Counts) -> None:
        self.peer = peer
        self._counts = counts
        self._inbox = Mailbox(peer)
        self._outbox = Mailbox(peer)
        self._reader: threading.Thread | None = None

    def _read(self, messages: Iterable[bytes]) -> None:
        """Starts the thread that reads a stream to its end: what nobody wants any more as well, or its end would not
        come."""
        reader = threading.Thread(target=self._drain, args=(messages,), name="dlobd-grpc-reader", daemon=True)
        reader.start()
        self._reader = reader  # who closes this end joins it

    def _drain(self, messages: Iterable[bytes]) -> None:
        try:
            for message in messages:
                try:
                    self._inbox.put(message, lambda: True)
                except ChannelError:
                    pass  # this end is closed
        except grpc.RpcError:
            pass  # the other end is gone, or this one has cancelled the call
        self._inbox.end(PeerClosed(f"{self.peer} has closed the connection"))
        self._send_no_more()

    def _send_no_more(self) -> None:
        """The peer has left; what it has sent is still to be received."""
        self._outbox.end(PeerClosed(f"{self.peer} has closed the connection"))

    def _sent(self) -> Iterator[bytes]:
        """What gRPC is to send; its end ends the stream after all that was sent."""
        while True:
            try:
                message = self._outbox.take()
            except ChannelError:
                return
            yield message

    def _shut(self) -> None:
        closed = Closed(f"the connection to {self.peer} is closed")
        self._inbox.end(closed, at_once=True)
        self._outbox.end(closed, at_once=True)

    def _give(self, message: bytes, deadline_s: float) -> None:
        self._outbox.hand_over(message, deadline_s)

    def _next(self, deadline_s: float) -> bytes:
        return self._inbox.take(deadline_s)


class _Dialled(_Stream):
    """The end that has connected, and that calls."""

    def __init__(self, channel: Any, peer: str, counts: Counts) -> None:
        super().__init__(peer, counts)
        self._channel = channel
        self._over = threading.Event()
        self._call = channel.stream_stream(f"/{SERVICE}/Exchange")(self._sent())
        if not self._call.add_callback(self._over.set):
            self._over.set()
        self._read(self._call)

    def close(self) -> None:
        """See the contract. The peer has LINGER_S to take what was sent and to end its stream; then gRPC cancels it."""
        self._shut()
        self._over.wait(LINGER_S)
        self._channel.close()
        if self._reader is not None:
            self._reader.join(LINGER_S)


class _Served(_Stream):
    """The end that was accepted, and that answers."""

    def __init__(self, peer: str, counts: Counts, listener: GrpcListener) -> None:
        super().__init__(peer, counts)
        self._listener = listener

    def exchange_call(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """The call that the peer has made for this connection."""
        if not context.add_callback(self._send_no_more):
            self._send_no_more()
        self._read(messages)
        yield from self._sent()

    def close(self) -> None:
        """See the contract."""
        self._shut()
        if self._reader is not None:
            self._reader.join(LINGER_S)
        self._listener.released(self)


def _handler(connection_of: Callable[[Any], Any]) -> Any:
    def handle(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        calls: Iterator[bytes] = connection_of(context).exchange_call(messages, context)
        return calls

    return grpc.stream_stream_rpc_method_handler(handle)
