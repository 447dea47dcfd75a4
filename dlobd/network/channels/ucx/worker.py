"""One UCX worker with one endpoint, and how its requests come to their end.

Two threads may wait here at once, one that sends and one that receives. UCX moves only while a thread calls it, one at
a time. A thread that waits first calls it SPIN times; then it arms the worker's descriptor and sleeps until UCX, the
peer's end or the other thread wakes it: on a shared core, spinning would keep the peer from running.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from dlobd.network.channels.base import ChannelError, Closed, DeadlinePassed, PeerClosed
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.context import Context

SPIN = 200
"""Calls of UCX before a thread sleeps: about 20 us. A message of a few KB on an idle link comes within them."""

TICK_S = 0.1
"""The longest sleep: what wakes nobody, such as a peer on another host that has vanished, is looked for this often."""

LAST_S = 0.2
"""How long messages may still come once the peer's TCP connection has ended: they take another way."""

CLOSE_S = 2.0
"""How long an endpoint may take to send what is under way once it is closed."""


class Worker:
    """Args:
        peer: for messages.

    Raises:
        ChannelError: UCX cannot make it.
    """

    def __init__(self, context: Context, peer: str) -> None:
        self.context = context
        self.ffi, self.ucp = context.ffi, context.ucp
        self.peer = peer
        self.lock = threading.RLock()
        self._link = -1
        self._ended = ""
        self._gone = ""  # why the peer is
        self._gone_s = 0.0
        self._asleep = 0
        params = self.ffi.new("ucp_worker_params_t *")
        params.field_mask, params.thread_mode = c.WORKER_THREAD_MODE, c.THREAD_MODE_SERIALIZED
        made = self.ffi.new("ucp_worker_h *")
        self.check(self.ucp.ucp_worker_create(context.handle, params, made), "make a worker")
        self.handle = made[0]
        self.endpoint: Any = self.ffi.NULL
        fd = self.ffi.new("int *")
        self.check(self.ucp.ucp_worker_get_efd(self.handle, fd), "wake who waits")
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = select.epoll()
        for each in (fd[0], self._wake):
            self._events.register(each, select.EPOLLIN)
        self._failed = self.ffi.callback("void(void *, ucp_ep_h, ucs_status_t)", self._on_error)

    def watch(self, link: int) -> None:
        """The descriptor of the TCP connection beside it, which ends when the peer does."""
        self._link = link
        self._events.register(link, select.EPOLLIN)

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

    def complete(self, request: Any, deadline_s: float, what: str) -> None:
        """Returns once a request that UCX has begun is complete.

        Raises:
            DeadlinePassed, PeerClosed, Closed, ChannelError: it is not; it is cancelled.
        """
        status = self._status(request)
        if status is not None:
            self.check(status, what)
            return
        try:
            self.until(lambda: self.ucp.ucp_request_check_status(request) != c.INPROGRESS, deadline_s, what)
            status = self.ucp.ucp_request_check_status(request)
        except ChannelError:
            self._cancel(request)
            raise
        finally:
            with self.lock:
                self.ucp.ucp_request_free(request)
        self.check(status, what)

    def until(self, done: Callable[[], Any], deadline_s: float, what: str) -> Any:
        """What `done` returns, called with the lock held, once that is true. Raises as `complete`."""
        spun = 0
        while True:
            with self.lock:
                self._check_open(what)
                while self.ucp.ucp_worker_progress(self.handle):
                    spun = 0
                if found := done():
                    if self._asleep:
                        os.eventfd_write(self._wake, 1)
                    return found
                now_s = time.monotonic()
                if self._gone and now_s >= self._gone_s + LAST_S:
                    raise PeerClosed(f"{self.peer} is gone ({self._gone}): UCX cannot {what}")
            if now_s >= deadline_s:
                raise DeadlinePassed(f"UCX could not {what} in time ({self.peer})")
            spun += 1
            if spun > SPIN:
                self._sleep(min(deadline_s - now_s, TICK_S))

    def _sleep(self, within_s: float) -> None:
        """Until something happens."""
        with self.lock:
            if self._ended or self.ucp.ucp_worker_arm(self.handle) != c.OK:
                return  # something has happened
            within_s = min(within_s, LAST_S) if self._gone else within_s
            self._asleep += 1
        try:
            woken = self._events.poll(within_s)
        finally:
            with self.lock:
                self._asleep -= 1
        for fd, _ in woken:
            if fd == self._wake:
                try:
                    os.eventfd_read(self._wake)
                except BlockingIOError:
                    pass  # the other thread has read it
            elif fd == self._link:
                self.peer_has_gone("it has closed its connection")

    def peer_has_gone(self, why: str) -> None:
        """Nothing more will be sent. What is under way is waited for, LAST_S long."""
        with self.lock:
            if not self._gone:
                self._gone, self._gone_s = why, time.monotonic()
                self._events.unregister(self._link)  # it would wake at once from now on

    def end(self, why: str) -> None:
        """Wakes all who wait; they raise Closed."""
        with self.lock:
            self._ended = self._ended or why
            if self.handle is not None:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends endpoint and worker, once nobody is inside a call. May be called twice."""
        self.end("it is closed")
        with self.lock:
            if self.handle is None:
                return
            if self.endpoint != self.ffi.NULL:
                param = self.ffi.new("ucp_request_param_t *")
                if self._gone:
                    param.op_attr_mask, param.flags = c.OP_FLAGS, c.EP_CLOSE_FORCE
                request = self.ucp.ucp_ep_close_nbx(self.endpoint, param)
                self._finish(request)
                self.endpoint = self.ffi.NULL
            self.ucp.ucp_worker_destroy(self.handle)
            self.handle = None
            self._events.close()
            os.close(self._wake)

    def _finish(self, request: Any) -> None:
        """Of closing: for at most CLOSE_S."""
        if self._status(request) is not None:
            return
        until_s = time.monotonic() + CLOSE_S
        while self.ucp.ucp_request_check_status(request) == c.INPROGRESS and time.monotonic() < until_s:
            self.ucp.ucp_worker_progress(self.handle)
        self.ucp.ucp_request_free(request)

    def _cancel(self, request: Any) -> None:
        """Its buffer is the caller's again when this returns."""
        with self.lock:
            if self.handle is None:
                return
            self.ucp.ucp_request_cancel(self.handle, request)
            until_s = time.monotonic() + CLOSE_S
            while self.ucp.ucp_request_check_status(request) == c.INPROGRESS and time.monotonic() < until_s:
                self.ucp.ucp_worker_progress(self.handle)

    def _status(self, request: Any) -> int | None:
        """Of what a call has returned: None where it is a request under way."""
        value = int(self.ffi.cast("intptr_t", request))
        return value if c.ERR_LAST <= value <= 0 else None

    def _on_error(self, arg: Any, endpoint: Any, status: int) -> None:
        self.peer_has_gone(self.context.words(status))

    def _check_open(self, what: str) -> None:
        if self._ended:
            raise Closed(f"the connection to {self.peer} is closed: UCX cannot {what}")

    def check(self, status: int, what: str) -> None:
        """Raises PeerClosed or ChannelError for what is not OK."""
        if status == c.OK:
            return
        self._check_open(what)
        kind = PeerClosed if self._gone else ChannelError
        raise kind(f"UCX cannot {what} ({self.peer}): {self.context.words(status)}")
