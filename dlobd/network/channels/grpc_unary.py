"""gRPC with a call per message.

    Send       the end that has connected sends: its call carries the message, and returns once there is room for it
    Receive    it receives: its call is answered with the other end's next message. One such call is always under way,
               so that one message at most lies ready before it is asked for
    Attend     lasts as long as the connection: by its end the other end learns that this one has left

See `dlobd.network.channels.grpc_rpc` for what is copied, and for who may call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import grpc

from dlobd.network.channels.base import ChannelError, Closed, DeadlinePassed, PeerClosed
from dlobd.network.channels.grpc_rpc import GrpcChannel, GrpcConnection, gone, timeout_s
from dlobd.network.channels.grpc_server import SERVICE, GrpcListener
from dlobd.network.channels.mailbox import Mailbox
from dlobd.network.channels.two_sided import Counts

LIBRARY = "grpc"


class GrpcUnaryChannel(GrpcChannel):
    """See `dlobd.network.channels.grpc_rpc.GrpcChannel`."""

    library: ClassVar[str] = LIBRARY

    def _methods(self) -> dict[str, Any]:
        return {"Send": _handler("send_call"), "Receive": _handler("receive_call"), "Attend": _handler("attend_call")}

    def _served(self, peer: str, counts: Counts, listener: GrpcListener) -> _Served:
        return _Served(peer, counts, listener)

    def _dialled(self, channel: Any, peer: str, counts: Counts) -> GrpcConnection:
        return _Dialled(channel, peer, counts)


class _Dialled(GrpcConnection):
    """The end that has connected, and that calls."""

    library = LIBRARY

    def __init__(self, channel: Any, peer: str, counts: Counts) -> None:
        self.peer = peer
        self._counts = counts
        self._channel = channel
        self._send = channel.unary_unary(f"/{SERVICE}/Send")
        self._receive = channel.unary_unary(f"/{SERVICE}/Receive")
        self._closed = False
        self._attending: Any = channel.unary_unary(f"/{SERVICE}/Attend").future(b"")
        self._coming: Any = self._receive.future(b"")

    def close(self) -> None:
        """See the contract: gRPC cancels all calls under way."""
        self._closed = True
        self._channel.close()

    def _give(self, message: bytes, deadline_s: float) -> None:
        try:
            self._send(message, timeout=timeout_s(deadline_s))
        except (grpc.RpcError, ValueError) as error:  # a ValueError for a grpc.Channel that is closed
            raise self._failed(error, "did not take a message") from error

    def _next(self, deadline_s: float) -> bytes:
        try:
            message: bytes = self._coming.result(timeout_s(deadline_s))
        except grpc.FutureTimeoutError as error:
            raise DeadlinePassed(f"{self.peer} sent no message in time") from error
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            raise self._failed(error, "sent no message") from error
        try:
            self._coming = self._receive.future(b"")
        except ValueError:  # closed just now: the next call says so
            self._coming = self._attending
        return message

    def _failed(self, error: BaseException, what: str) -> ChannelError:
        if self._closed:
            return Closed(f"the connection to {self.peer} is closed")
        if isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlinePassed(f"{self.peer} {what} in time")
        return gone(self.peer, error)


class _Served(GrpcConnection):
    """The end that was accepted, and that answers."""

    library = LIBRARY

    def __init__(self, peer: str, counts: Counts, listener: GrpcListener) -> None:
        self.peer = peer
        self._counts = counts
        self._listener = listener
        self._inbox = Mailbox(peer)
        self._outbox = Mailbox(peer)
        self._over = threading.Event()

    def close(self) -> None:
        """See the contract."""
        closed = Closed(f"the connection to {self.peer} is closed")
        self._inbox.end(closed, at_once=True)
        self._outbox.end(closed, at_once=True)
        self._over.set()
        self._listener.released(self)

    def send_call(self, request: bytes, context: Any) -> bytes:
        """A message of the peer. One that it has given up by its deadline is dropped."""
        if context.add_callback(self._inbox.look):
            self._inbox.put(request, context.is_active)
        return b""

    def receive_call(self, request: bytes, context: Any) -> bytes:
        """The next message for the peer."""
        return self._outbox.take()

    def attend_call(self, request: bytes, context: Any) -> bytes:
        """Until either end leaves."""
        if context.add_callback(self._peer_left):
            self._over.wait()
        else:
            self._peer_left()
        return b""

    def _give(self, message: bytes, deadline_s: float) -> None:
        self._outbox.hand_over(message, deadline_s)

    def _next(self, deadline_s: float) -> bytes:
        return self._inbox.take(deadline_s)

    def _peer_left(self) -> None:
        left = PeerClosed(f"{self.peer} has closed the connection")
        self._inbox.end(left)
        self._outbox.end(left)
        self._over.set()


def _handler(method: str) -> Callable[[Callable[[Any], Any]], Any]:
    """Of calls to a method of their connection."""

    def make(connection_of: Callable[[Any], Any]) -> Any:
        def handle(request: bytes, context: Any) -> bytes:
            connection = connection_of(context)
            try:
                answer: bytes = getattr(connection, method)(request, context)
            except ChannelError as error:
                context.abort(grpc.StatusCode.UNAVAILABLE, "it has closed the connection")
                raise AssertionError("abort raises") from error
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    return make
