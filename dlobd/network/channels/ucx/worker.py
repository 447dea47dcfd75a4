"""One UCX worker with one endpoint, and how its requests come to their end."""

from __future__ import annotations

import socket
import time
from typing import Any

from dlobd.network.channels.base import ChannelError, PeerClosed
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.context import Context
from dlobd.network.channels.ucx.progress import CUT, Progress
from dlobd.network.channels.ucx.sleeper import Sleeper

GIVE_UP_S = 0.1
"""How much longer than its deadline a call may take that is given up: until UCX has let go of its memory."""

CLOSE_S = 2.0
"""How long an endpoint may take to send what is under way once it is closed."""


class Worker(Progress):
    """Attributes:
        null: UCX's answer where a call was complete at once, and where there is no message.

    Args:
        peer: for messages.

    Raises:
        ChannelError: UCX cannot make it.
    """

    def __init__(self, context: Context, peer: str) -> None:
        super().__init__(context.ucp, peer)
        self.context = context
        self.ffi = context.ffi
        self.null = context.ffi.NULL
        self._left: list[Any] = []  # requests that were given up, with the memory that UCX may still use
        params = self.ffi.new("ucp_worker_params_t *")
        params.field_mask, params.thread_mode = c.WORKER_THREAD_MODE, c.THREAD_MODE_SERIALIZED
        made = self.ffi.new("ucp_worker_h *")
        self.check(self.ucp.ucp_worker_create(context.handle, params, made), "make a worker")
        self.handle = made[0]
        self.endpoint: Any = self.ffi.NULL
        self._failed = self.ffi.callback("void(void *, ucp_ep_h, ucs_status_t)", self._on_error)

    def watch(self, link: socket.socket) -> None:
        """The TCP connection beside it, which ends when the peer does; the caller's to close, after this worker."""
        self.link = link

    def sleeper(self) -> Sleeper:
        """For one more thread that may wait."""
        assert self.link is not None
        fd = self.ffi.new("int *")
        self.check(self.ucp.ucp_worker_get_efd(self.handle, fd), "wake who waits")
        with self.lock:
            self.sleepers.append(Sleeper(fd[0], None if self.gone else self.link.fileno()))
            return self.sleepers[-1]

    def address(self) -> bytes:
        """By which the peer's endpoint finds this worker."""
        found, length = self.ffi.new("ucp_address_t *"), self.ffi.new("size_t *")
        self.check(self.ucp.ucp_worker_get_address(self.handle, found, length), "say its address")
        try:
            return bytes(self.ffi.buffer(found[0], length[0]))
        finally:
            self.ucp.ucp_worker_release_address(self.handle, found[0])

    def connect(self, address: bytes) -> None:
        """Makes the endpoint, to the worker of that address. UCX connects when it first sends."""
        params = self.ffi.new("ucp_ep_params_t *")
        kept = self.ffi.from_buffer(address)
        params.field_mask = c.EP_REMOTE_ADDRESS | c.EP_ERR_MODE | c.EP_ERR_HANDLER
        params.address, params.err_mode, params.err_cb = kept, self.context.err_mode, self._failed
        made = self.ffi.new("ucp_ep_h *")
        self.check(self.ucp.ucp_ep_create(self.handle, params, made), f"reach {self.peer}")
        self.endpoint = made[0]

    def lanes(self) -> tuple[str, ...]:
        """TRANSPORT/DEVICE of what the endpoint uses, as UCX says."""
        entries = self.ffi.new("ucp_transport_entry_t[16]")
        attr = self.ffi.new("ucp_ep_attr_t *")
        attr.field_mask = c.EP_ATTR_TRANSPORTS
        attr.entries, attr.num_entries, attr.entry_size = entries, 16, self.ffi.sizeof("ucp_transport_entry_t")
        with self.lock:
            if self.endpoint == self.ffi.NULL or self.ucp.ucp_ep_query(self.endpoint, attr) != c.OK:
                return ()
        named = (
            (self.ffi.string(each.transport_name).decode(), self.ffi.string(each.device_name).decode())
            for each in entries[0 : attr.num_entries]
        )
        return tuple(dict.fromkeys("/".join(words) for words in named))

    def complete(self, request: Any, memory: Any, sleeper: Sleeper, deadline_s: float, what: str) -> bool:
        """Returns once a request that UCX has begun is complete: whether it was not at once.

        Args:
            memory: what keeps the request's buffers; UCX may use them as long as the request is not complete.

        Raises:
            DeadlinePassed, PeerClosed, Closed, ChannelError: it is not, and the connection is of no more use.
        """
        status = self.status(request)
        if status is not None:
            self.check(status, what)
            return False
        try:
            self.until(lambda: self.ucp.ucp_request_check_status(request) != c.INPROGRESS, sleeper, deadline_s, what)
        except ChannelError as error:
            self.give_up(request, memory, str(error))
            raise
        with self.lock:
            status = self.ucp.ucp_request_check_status(request)
            self.ucp.ucp_request_free(request)
        self.check(status, what)
        return True

    def _on_error(self, arg: Any, endpoint: Any, status: int) -> None:
        self.peer_has_gone(self.context.words(status))

    # ---- the end

    def give_up(self, request: Any, memory: Any, why: str) -> None:
        """UCX may go on with it until its endpoint is closed: neither is freed before, and the peer is told not to
        believe what comes of it."""
        with self.lock:
            if self.handle is None:
                return
            self._left.append((request, memory))
            self.cut = self.cut or f"a call was given up: {why}"
            try:
                assert self.link is not None
                self.link.send(CUT, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                pass  # it has gone
            if self.context.err_mode == c.ERR_MODE_PEER:
                self._close_endpoint(GIVE_UP_S)  # else a device would go on with its memory
            self.wake_all()

    def end(self, why: str) -> None:
        """Wakes all who wait; they raise Closed."""
        with self.lock:
            self.ended = self.ended or why
            self.wake_all()

    def close(self) -> None:
        """Ends endpoint and worker, once nobody is inside a call. May be called twice."""
        self.end("it is closed")
        with self.lock:
            if self.handle is None:
                return
            self._close_endpoint(CLOSE_S)
            for request, _ in self._left:
                self.ucp.ucp_request_free(request)
            self.ucp.ucp_worker_destroy(self.handle)
            self.handle = None
            self._left.clear()
            for each in self.sleepers:
                each.close()

    def _close_endpoint(self, within_s: float) -> None:
        """With the lock held. What is under way is sent before, unless the peer has gone, or a call was given up."""
        if self.endpoint == self.null:
            return
        until_s = time.monotonic() + within_s
        if self._left and self.context.err_mode == c.ERR_MODE_NONE:
            # over shared memory an end cannot be forced, and a worker that ends in the middle of a copy out of the
            # peer's memory aborts the process: the copy needs nobody else
            while self.ucp.ucp_worker_progress(self.handle) and time.monotonic() < until_s:
                pass
        param = self.ffi.new("ucp_request_param_t *")
        if self.gone or self._left:
            param.op_attr_mask, param.flags = c.OP_FLAGS, c.EP_CLOSE_FORCE
        request = self.ucp.ucp_ep_close_nbx(self.endpoint, param)
        self.endpoint = self.null
        if self.status(request) is not None:
            return
        while self.ucp.ucp_request_check_status(request) == c.INPROGRESS and time.monotonic() < until_s:
            self.ucp.ucp_worker_progress(self.handle)
        self.ucp.ucp_request_free(request)

    def status(self, request: Any) -> int | None:
        """Of what a call has returned: None where it is a request under way."""
        if request == self.null:  # the usual one, which is OK
            return 0
        value = int(self.ffi.cast("intptr_t", request))
        return value if c.ERR_LAST <= value <= 0 else None

    def check(self, status: int, what: str) -> None:
        """Raises PeerClosed or ChannelError for what is not OK."""
        if status == c.OK:
            return
        self.check_open(what)
        kind = PeerClosed if self.gone else ChannelError
        raise kind(f"UCX cannot {what} ({self.peer}): {self.context.words(status)}")
