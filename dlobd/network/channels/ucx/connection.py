"""Messages over a UCX endpoint.

A message is one send by tag. Who receives probes for it first, which tells its length: one that does not fit is refused
before a byte of it is written. UCX takes buffers by their address; nothing is copied in Python.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dlobd.network.channels.base import Buffer, ChannelError, MessageTooLong, Traffic
from dlobd.network.channels.two_sided import Counts
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.one_sided import OneSided
from dlobd.network.channels.ucx.worker import Worker

TAG, ANY = 1, 0
"""A connection has a worker of its own, so that one tag is enough."""

MAX_PARTS = 1024
"""Of one message: as of a vector of the kernel."""


class UcxConnection:
    """See `dlobd.network.channels.base.Connection`.

    Args:
        worker: whose context was entered for it; it is left with `close`.
        link: the TCP connection beside it, this connection's to close.
        own, theirs: what each end calls itself, so that a key of another connection is none.
    """

    library = "ucx"

    def __init__(self, worker: Worker, link: socket.socket, own: bytes, theirs: bytes) -> None:
        self.peer = worker.peer
        self._worker = worker
        self._link = link
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._finishing = threading.Lock()
        self._sender, self._receiver, self._finisher = worker.sleeper(), worker.sleeper(), worker.sleeper()
        self._one_sided = OneSided(worker, self._sender, own, theirs)
        self._counts = Counts("unknown", "")
        self._lanes: tuple[str, ...] = ()
        self._begun: list[tuple[Any, Any, int]] = []  # sends whose end is not awaited yet
        self._closing, self._closed = threading.Lock(), False
        ffi = worker.ffi
        self._memory = ffi.from_buffer  # of a contiguous buffer: where it is, and how long
        self._info = ffi.new("ucp_tag_recv_info_t *")
        self._plain = ffi.new("ucp_request_param_t *")
        self._parts = ffi.new("ucp_request_param_t *")
        self._parts.op_attr_mask, self._parts.datatype = c.OP_DATATYPE, c.DATATYPE_IOV
        self._out, self._in = ffi.new("ucp_dt_iov_t[]", MAX_PARTS), ffi.new("ucp_dt_iov_t[]", MAX_PARTS)

    # ---- messages

    def send(self, message: Buffer, deadline_s: float) -> None:
        """See the contract."""
        with self._sending:
            memory = self._memory(message)
            self._send(memory, len(memory), self._plain, len(memory), memory, deadline_s)

    def begin_send(self, message: Buffer) -> Any:
        """See the contract. None where UCX has taken the bytes already."""
        memory = self._memory(message)
        size = len(memory)
        if (request := self._request(memory, size, self._plain, size)) is None:
            return None
        self._begun.append(begun := (request, memory, size))
        return begun

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """See the contract."""
        request, memory, size = begun
        with self._finishing:  # and not of sending: others are begun meanwhile
            self._begun.remove(begun)
            self._worker.complete(request, memory, self._finisher, deadline_s, "send")
            self._sent(size)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """See the contract."""
        with self._receiving:
            memory = self._memory(into)
            return self._recv(memory, len(memory), len(memory), self._plain, memory, deadline_s)

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """See the contract. At most MAX_PARTS of them."""
        with self._sending:
            count, size, kept = self._filled(self._out, parts)
            self._send(self._out, count, self._parts, size, kept, deadline_s)

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """See the contract."""
        with self._receiving:
            count, room, kept = self._filled(self._in, parts)
            return self._recv(self._in, count, room, self._parts, kept, deadline_s)

    def _send(self, buffer: Any, count: int, param: Any, size: int, memory: Any, deadline_s: float) -> None:
        if (request := self._request(buffer, count, param, size)) is not None:
            self._worker.complete(request, memory, self._sender, deadline_s, "send")
            self._sent(size)

    def _request(self, buffer: Any, count: int, param: Any, size: int) -> Any:
        """What UCX is to send; None, and counted, where it has taken the bytes at once."""
        worker = self._worker
        with worker.lock:
            worker.check_open("send")
            request = worker.ucp.ucp_tag_send_nbx(worker.endpoint, buffer, count, TAG, param)
            status = worker.status(request)
            if status is None:
                return request
            worker.check(status, "send")
            self._counts.sent_messages += 1
            self._counts.sent_bytes += size
            return None

    def _sent(self, size: int) -> None:
        with self._worker.lock:  # one thread may begin while another one finishes
            self._counts.sent_messages += 1
            self._counts.sent_bytes += size

    def _recv(self, buffer: Any, count: int, room: int, param: Any, memory: Any, deadline_s: float) -> int:
        worker = self._worker

        def probed() -> Any:
            message = worker.ucp.ucp_tag_probe_nb(worker.handle, TAG, ANY, 1, self._info)
            return message if message != worker.null else None

        message = worker.until(probed, self._receiver, deadline_s, "receive")
        size = int(self._info.length)
        fits = size <= room
        if fits and param is self._parts:
            count = self._cut(count, size)
        with worker.lock:
            worker.check_open("receive")
            taken = (buffer, size if param is self._plain else count) if fits else (worker.null, 0)
            request = worker.ucp.ucp_tag_msg_recv_nbx(worker.handle, *taken, message, param if fits else self._plain)
        if not fits:
            with suppress(ChannelError):  # UCX says that it is truncated
                worker.complete(request, None, self._receiver, deadline_s, "receive")
            raise MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room}")
        if worker.complete(request, memory, self._receiver, deadline_s, "receive"):
            worker.check_trust("receive")  # it was read from memory that the peer still lent
        self._counts.received_messages += 1
        self._counts.received_bytes += size
        return size

    def _cut(self, count: int, size: int) -> int:
        """So many parts have room for a message of `size` bytes; the last of them is made no longer than needed."""
        for number in range(count):
            if self._in[number].length >= size:
                self._in[number].length = size
                return number + 1
            size -= self._in[number].length
        return count

    def _filled(self, vector: Any, parts: Sequence[Buffer]) -> tuple[int, int, list[Any]]:
        """Count and bytes of the parts that hold something, and what keeps their memory."""
        kept: list[Any] = []
        size = 0
        for part in parts:
            pointer = self._memory(part)
            if not len(pointer):
                continue
            if len(kept) == MAX_PARTS:
                raise ValueError(f"a message may have at most {MAX_PARTS} parts")
            vector[len(kept)].buffer, vector[len(kept)].length = pointer, len(pointer)
            kept.append(pointer)
            size += len(pointer)
        return len(kept), size, kept

    # ---- memory of the other end, see `OneSided`

    def register(self, memory: Buffer) -> bytes:
        """See the contract. From now on a thread of this end lets UCX move, as the peer may reach in at any time."""
        return self._one_sided.register(memory)

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        with self._sending:
            self._one_sided.put(source, key, offset_bytes, deadline_s)

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        with self._sending:
            self._one_sided.get(into, key, offset_bytes, deadline_s)

    def flush(self, deadline_s: float) -> None:
        """See the contract."""
        with self._sending:
            self._one_sided.flush(deadline_s)

    # ---- the end

    def traffic(self) -> Traffic:
        """What it has carried; its lanes as UCX said last."""
        self._lanes = self._worker.lanes() or self._lanes
        counts, reached = self._counts, self._one_sided
        return Traffic(
            "unknown", "", counts.sent_messages, counts.sent_bytes, counts.received_messages, counts.received_bytes,
            reached.put_bytes, reached.got_bytes, self._lanes,
        )  # fmt: skip

    def close(self) -> None:
        """See the contract."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._worker.end("closed")
            self._one_sided.stop()
            with self._sending, self._receiving, self._finishing:
                self.traffic()
                for request, memory, _ in self._begun:
                    self._worker.give_up(request, memory, "its end was not awaited")
                self._one_sided.forget_keys()
                self._worker.close()
                self._one_sided.unregister()
                self._link.close()
                self._worker.context.leave()


def name() -> bytes:
    """What an end calls itself."""
    return os.urandom(16)
