"""UCX context for one transport, and a worker with one endpoint: completion of requests, and waiting for them.

A context allows a single transport and device, so that UCX cannot fall back to another transport:

    tcp, ipoib    UCX_TLS=tcp UCX_NET_DEVICES=INTERFACE
    rdma          UCX_TLS=rc UCX_NET_DEVICES=DEVICE:PORT
    shm           UCX_TLS=posix,sysv,cma, without UCX_NET_DEVICES: there is no device

UCX makes progress only while a thread calls it, and only one thread may call it at a time. Up to three threads may
wait: a sender, a receiver, and a thread that serves the peer's access to memory. A waiting thread first calls UCX
repeatedly; then it yields its core between the calls, so that the peer runs on a shared core; then it arms the worker's
descriptor and sleeps. A thread that makes progress checks the requests of sleeping threads too, and arms the descriptor
again when it leaves.
"""

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import ChannelError, Closed, DeadlinePassed, PeerClosed, Yields
from dlobd.network.channels.ip import resolve
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.library import CData, Library, load
from dlobd.network.devices import devices


def settings(transport: str, device: str) -> dict[str, str]:
    """Return UCX's settings, without their prefix UCX_. Raises UsageError, SetupError: the device cannot be used."""
    if transport == "shm":
        return {"TLS": "posix,sysv,cma"}
    if transport == "rdma":
        return {"TLS": "rc", "NET_DEVICES": port(device)}
    interface, _ = resolve(transport, device)
    if interface.type == interfaces.LOOPBACK:
        raise SetupError("UCX finds no route over loopback.", "choose another interface, or channel.library=sockets")
    return {"TLS": "tcp", "NET_DEVICES": interface.name}


def port(device: str) -> str:
    """Return DEVICE:PORT of an RDMA device (default: port 1). Raises UsageError, SetupError: there is no such port."""
    found = [f"{one.name}:{each.number}" for one in devices() for each in one.ports]
    if not found:
        raise SetupError("This host has no RDMA device.", "dlobd doctor --require rdma, or use channel=tcp")
    if not device:
        raise UsageError("Channel rdma needs the name of its device.", f"write it as in rdma@{found[0]}")
    wanted = device if ":" in device else f"{device}:1"
    if wanted not in found:
        raise UsageError(f"This host has no RDMA port {wanted!r}.", f"choose one of {', '.join(found)}")
    return wanted


class Context:
    """UCX context of one channel, destroyed once it is closed and has no users. Raises UsageError, SetupError."""

    def __init__(self, transport: str, device: str) -> None:
        chosen = settings(transport, device)
        self.library: Library = load()
        self.ffi: CData = self.library.ffi
        self.ucp: CData = self.library.ucp
        # transports within a host report no errors, and UCX rejects them if error handling is requested
        self.err_mode = c.ERR_MODE_NONE if transport == "shm" else c.ERR_MODE_PEER
        self.handle = self._create(chosen)
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False

    def _create(self, chosen: dict[str, str]) -> CData:
        ffi, ucp = self.ffi, self.ucp
        config = ffi.new("ucp_config_t *")
        self._check(ucp.ucp_config_read(ffi.NULL, ffi.NULL, config), "read its settings")
        try:
            for name, value in chosen.items():
                self._check(ucp.ucp_config_modify(config[0], name.encode(), value.encode()), f"take UCX_{name}={value}")
            params = ffi.new("ucp_params_t *")
            params.field_mask = c.PARAM_FEATURES
            params.features = c.FEATURE_TAG | c.FEATURE_RMA | c.FEATURE_WAKEUP
            context = ffi.new("ucp_context_h *")
            words = " ".join(f"UCX_{name}={value}" for name, value in chosen.items())
            self._check(ucp.ucp_init_version(1, 10, params, config[0], context), f"start with {words}")
        finally:
            ucp.ucp_config_release(config[0])
        return context[0]

    def words(self, status: int) -> str:
        """Return UCX's text for a status."""
        return str(self.ffi.string(self.ucp.ucs_status_string(status)).decode())

    def _check(self, status: int, what: str) -> None:
        if status != c.OK:
            raise SetupError(f"UCX cannot {what}: {self.words(status)}.", "dlobd doctor, or use another channel")

    def enter(self) -> None:
        """Register a user of this context. Raises Closed."""
        with self._lock:
            if self._closed:
                raise Closed("the channel is closed")
            self._users += 1

    def leave(self) -> None:
        """Unregister a user after the release of its worker and memory."""
        with self._lock:
            self._users -= 1
            self._end()

    def close(self) -> None:
        """Refuse new users; may be called twice."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._closed and not self._users and self.handle is not None:
            self.ucp.ucp_cleanup(self.handle)
            self.handle = None


class Sleeper:
    """Wait object of a single thread. Threads do not share it, so that no thread consumes another thread's wake-up.

    `events` is UCX's descriptor, readable at the next event after arming. `link` is the descriptor of the TCP
    connection to the peer, or None if the peer is gone.
    """

    def __init__(self, events: int, link: int | None) -> None:
        self.asleep = False  # changed only with the worker's lock held
        self._found: CData = None
        self._done: Callable[[], CData] | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._link = link
        for descriptor in (self._wake, events, *(() if link is None else (link,))):
            self._poll.register(descriptor, select.POLLIN)

    def fall_asleep(self, done: Callable[[], CData]) -> None:
        """Prepare `sleep`; `done` returns the result that this thread waits for."""
        self.asleep, self._done = True, done

    def sleep(self, within_s: float) -> bool:
        """Sleep without the lock; return True if the TCP connection woke this thread."""
        woken = {descriptor for descriptor, _ in self._poll.poll(within_s * 1e3)}
        if self._wake in woken:
            os.eventfd_read(self._wake)
        return self._link in woken

    def wake_up(self) -> CData:
        """Finish `sleep`; return the result that another thread has received meanwhile."""
        found, self._found, self.asleep, self._done = self._found, None, False, None
        return found

    def check(self) -> None:
        """Check for the awaited result, in another thread that made progress, and wake the sleeping thread."""
        if self._done is not None and (found := self._done()):
            self._found, self._done = found, None
            self.wake()

    def wake(self) -> None:
        """Wake the thread without a result."""
        os.eventfd_write(self._wake, 1)

    def forget_link(self) -> None:
        """Stop watching the TCP connection, which stays readable from now on."""
        if self._link is not None:
            self._poll.unregister(self._link)
            self._link = None

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._wake)


BURST, SPIN, YIELD = 8, 16, 100
"""Progress calls per lock acquisition, then the number of such bursts without a result before a thread yields its core,
and the number of bursts with yields before it sleeps. The bursts without yields take about 100 us, in which a message
of a few KB arrives over an idle link; those with yields take several times the cost of a wake-up."""

TICK_S = 0.1  # longest sleep: events that wake no thread, such as a vanished host, are checked at this interval
LAST_S = 0.2  # how long messages are accepted after the peer's TCP connection has ended: they take another path
GIVE_UP_S = 0.1  # extra time after the deadline for UCX to release the memory of an abandoned call
CLOSE_S = 2.0  # time for a closing endpoint to send pending data
CUT = b"!"  # byte on the TCP connection: a call was abandoned, and its data must not be trusted


class Worker:
    """Worker with one endpoint, and its progress engine. Raises ChannelError: UCX cannot create the worker."""

    def __init__(self, context: Context, peer: str) -> None:
        self.context = context
        self.ffi = context.ffi
        self.ucp = context.ucp
        self.endpoint: CData = context.ffi.NULL
        self.handle: CData = None
        self.peer = peer
        self.lock = threading.RLock()  # held around every call of UCX
        self.link: socket.socket | None = None  # the TCP connection to the peer
        self.ended = self.cut = ""  # reason why this end is unusable: it was closed, or a call was abandoned
        self.gone = ""  # reason why the peer is unusable
        self.distrusted = False  # the peer has abandoned a call: the memory of its messages may have changed
        self.sleepers: list[Sleeper] = []
        self._sleeping = 0
        self._link_poll = select.poll()
        self._link_ended = False
        self._yields = Yields()
        self._gone_s = 0.0
        self._left: list[tuple[int, CData]] = []  # abandoned requests, with the memory that UCX may still use
        params = self.ffi.new("ucp_worker_params_t *")
        params.field_mask, params.thread_mode = c.WORKER_THREAD_MODE, c.THREAD_MODE_SERIALIZED
        made = self.ffi.new("ucp_worker_h *")
        self.check(self.ucp.ucp_worker_create(context.handle, params, made), "create a worker")
        self.handle = made[0]
        self._failed = self.ffi.callback(
            "void(void *, ucp_ep_h, ucs_status_t)",
            lambda arg, endpoint, status: self.peer_has_gone(context.words(status)),
        )

    def until(
        self,
        done: Callable[[], CData],
        sleeper: Sleeper,
        deadline_s: float,
        what: str,
        other: Callable[[], CData] = lambda: None,
    ) -> CData:
        """Make progress until `done` or `other` return a true value; return this value.

        Both are called with the lock held, `other` only when there is no progress.

        Raises the errors of `complete`.
        """
        progress, handle = self.ucp.ucp_worker_progress, self.handle
        spun = 0
        found: CData = None
        while True:
            with self.lock:
                self.check_open(what)
                for _ in range(BURST):
                    if not found:
                        if progress(handle):
                            spun = 0
                            if self._sleeping:
                                self._check_sleepers()
                            found = done()
                        else:
                            found = done() or other()
                    if found:
                        if self._sleeping:
                            self._arm_for_sleepers()
                        return found
                now_s = time.monotonic()
                if self.gone and now_s >= self._gone_s + LAST_S:
                    raise PeerClosed(f"{self.peer} is gone ({self.gone}): UCX cannot {what}")
                if now_s >= deadline_s:
                    self._arm_for_sleepers()
                    raise DeadlinePassed(f"UCX could not {what} in time (peer {self.peer})")
            spun += 1
            if spun > SPIN + YIELD or (spun > SPIN and not self._yields.allowed()):
                found = self._sleep(lambda: done() or other(), sleeper, min(deadline_s - now_s, TICK_S))
            elif spun > SPIN:
                self._yields.once()

    def _check_sleepers(self) -> None:
        """Check the requests of sleeping threads, with the lock held."""
        for each in self.sleepers:
            if each.asleep:
                each.check()

    def _arm_for_sleepers(self) -> None:
        """Arm UCX's descriptor again for sleepers, with the lock held: this thread may have consumed their wake-up."""
        while self._sleeping:
            if self.ucp.ucp_worker_arm(self.handle) != c.ERR_BUSY:
                return
            if self.ucp.ucp_worker_progress(self.handle):
                self._check_sleepers()

    def _sleep(self, done: Callable[[], CData], sleeper: Sleeper, within_s: float) -> CData:
        """Sleep until an event; return the result that this or another thread has received."""
        with self.lock:
            if self.ended or self.cut:
                return None
            if found := done():  # another thread may have made progress
                return found
            if self.ucp.ucp_worker_arm(self.handle) != c.OK:
                return None  # an event is pending
            within_s = min(within_s, LAST_S) if self.gone else within_s
            sleeper.fall_asleep(done)
            self._sleeping += 1
        peer_left = False
        try:
            peer_left = sleeper.sleep(within_s)
        finally:
            with self.lock:
                found = sleeper.wake_up()
                self._sleeping -= 1
        if peer_left:
            self.poll_link()
        return found

    # ---- the peer

    def poll_link(self) -> None:
        """Check whether the peer has closed its end or abandoned a call."""
        with self.lock:  # two threads must not use one poll object
            if self.link is None or self._link_ended or not self._link_poll.poll(0):
                return
            try:
                said = self.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except OSError:
                said = b""
            self._link_ended = True
            self.distrusted = said == CUT
            what = "abandoned a call" if self.distrusted else "closed its connection"
            self.peer_has_gone(f"the peer has {what}")

    def check_peer(self, what: str) -> None:
        """Raise PeerClosed if the peer is gone, even if some of its messages are not received yet."""
        self.poll_link()
        self.check_open(what)
        if self.gone:
            raise PeerClosed(f"{self.peer} is gone ({self.gone}): UCX cannot {what}")

    def check_trust(self, what: str) -> None:
        """Raise PeerClosed if the peer has abandoned a call: received data may come from changed memory."""
        self.poll_link()
        if self.distrusted:
            raise PeerClosed(f"{self.peer} has abandoned a call: the data of this {what} cannot be trusted")

    def peer_has_gone(self, why: str) -> None:
        """Record that the peer is gone; pending data is still accepted for LAST_S."""
        with self.lock:
            if not self.gone:
                self.gone, self._gone_s = why, time.monotonic()
                for each in self.sleepers:
                    each.forget_link()

    def wake_all(self) -> None:
        """Wake all sleeping threads, with the lock held."""
        if self.handle is not None:
            for each in self.sleepers:
                each.wake()

    def check_open(self, what: str) -> None:
        """Raise Closed if this end is closed, PeerClosed if a call of either end was abandoned."""
        if self.ended:
            raise Closed(f"the connection to {self.peer} is closed: UCX cannot {what}")
        if self.cut:
            raise PeerClosed(f"the connection to {self.peer} is unusable ({self.cut}): UCX cannot {what}")

    def watch(self, link: socket.socket) -> None:
        """Watch the TCP connection, which ends with the peer. The caller closes it after this worker."""
        self.link = link
        self._link_poll.register(link, select.POLLIN)

    def sleeper(self) -> Sleeper:
        """Create the wait object of another thread."""
        assert self.link is not None
        fd = self.ffi.new("int *")
        self.check(self.ucp.ucp_worker_get_efd(self.handle, fd), "create a wake-up descriptor")
        with self.lock:
            self.sleepers.append(Sleeper(fd[0], None if self.gone else self.link.fileno()))
            return self.sleepers[-1]

    def address(self) -> bytes:
        found, length = self.ffi.new("ucp_address_t *"), self.ffi.new("size_t *")
        self.check(self.ucp.ucp_worker_get_address(self.handle, found, length), "return its address")
        try:
            return bytes(self.ffi.buffer(found[0], length[0]))
        finally:
            self.ucp.ucp_worker_release_address(self.handle, found[0])

    def connect(self, address: bytes) -> None:
        """Create the endpoint to the worker at an address. UCX connects at the first send."""
        params = self.ffi.new("ucp_ep_params_t *")
        kept = self.ffi.from_buffer(address)
        params.field_mask = c.EP_REMOTE_ADDRESS | c.EP_ERR_MODE | c.EP_ERR_HANDLER
        params.address, params.err_mode, params.err_cb = kept, self.context.err_mode, self._failed
        made = self.ffi.new("ucp_ep_h *")
        self.check(self.ucp.ucp_ep_create(self.handle, params, made), f"reach {self.peer}")
        self.endpoint = made[0]

    def lanes(self) -> tuple[str, ...]:
        """Return the TRANSPORT/DEVICE pairs that UCX reports for the endpoint."""
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

    def complete(
        self,
        request: int,
        memory: CData,
        sleeper: Sleeper,
        deadline_s: float,
        what: str,
        other: Callable[[], CData] = lambda: None,
    ) -> CData:
        """Wait for the request of a call, which may be its status; return True.

        A true result of `other` is returned instead, and cancels the request. `memory` keeps the buffers of the request
        alive meanwhile.

        Raises DeadlinePassed, PeerClosed or Closed; ChannelError if the request failed: the connection is unusable.
        """
        found: CData = True
        if request > 0:
            check = self.ucp.ucp_request_check_status
            try:
                found = self.until(lambda: check(request) != c.INPROGRESS, sleeper, deadline_s, what, other)
            except BaseException as error:  # also Ctrl-C: the request uses the memory
                self.release(request, memory, str(error))
                raise
            request = self.release(request, memory, "")
        if request and found is True:
            self.check(request, what)
        return found

    def release(self, request: int, memory: CData, why: str) -> int:
        """Free a request, and return its status; UCX can cancel a receive without a message, but nothing else."""
        with self.lock:
            status: int = self.ucp.ucp_request_check_status(request)
            if status == c.INPROGRESS:
                self.ucp.ucp_request_cancel(self.handle, request)
                status = self.ucp.ucp_request_check_status(request)
            if status == c.INPROGRESS:
                self.give_up(request, memory, why)
            else:
                self.ucp.ucp_request_free(request)
            return status

    # ---- the end

    def give_up(self, request: int, memory: CData, why: str) -> None:
        """Abandon a request: keep its memory until the endpoint closes, and tell the peer that its data is invalid."""
        with self.lock:
            if self.handle is None:
                return
            self._left.append((request, memory))
            self.cut = self.cut or f"a call was abandoned: {why}"
            with suppress(OSError):  # the peer is gone
                assert self.link is not None
                self.link.send(CUT, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            if self.context.err_mode == c.ERR_MODE_PEER:
                self._close_endpoint(GIVE_UP_S)  # otherwise a device would still access the memory
            self.wake_all()

    def end(self, why: str) -> None:
        with self.lock:
            self.ended = self.ended or why
            self.wake_all()

    def close(self) -> None:
        """Destroy endpoint and worker once no thread is inside a call; may be called twice."""
        self.end("this end is closed")
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
        """Close the endpoint with the lock held; first send pending data if both ends are usable."""
        if self.endpoint == self.ffi.NULL:
            return
        until_s = time.monotonic() + within_s
        if self._left and self.context.err_mode == c.ERR_MODE_NONE:
            # shared memory cannot be closed by force, and a worker that is destroyed while it copies from the peer's
            # memory aborts the process; the copy completes without the peer
            while self.ucp.ucp_worker_progress(self.handle) and time.monotonic() < until_s:
                pass
        param = self.ffi.new("ucp_request_param_t *")
        if self.gone or self._left:
            param.op_attr_mask, param.flags = c.OP_FLAGS, c.EP_CLOSE_FORCE
        request = self.ucp.ucp_ep_close_nbx(self.endpoint, param)
        self.endpoint = self.ffi.NULL
        if request <= 0:  # done, or failed
            return
        while self.ucp.ucp_request_check_status(request) == c.INPROGRESS and time.monotonic() < until_s:
            self.ucp.ucp_worker_progress(self.handle)
        self.ucp.ucp_request_free(request)

    def check(self, status: int, what: str) -> None:
        if status == c.OK:
            return
        self.check_open(what)
        kind = PeerClosed if self.gone else ChannelError
        raise kind(f"UCX cannot {what} (peer {self.peer}): {self.context.words(status)}")
