"""Messages over a UCX endpoint, and access to the peer's memory.

A message is one send by tag. Who receives probes for it first, which tells its length: one that does not fit is refused
before a byte of it is written. UCX takes buffers by their address; nothing is copied in Python.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from dlobd.network.channels.base import (
    Buffer,
    ChannelError,
    Closed,
    DeadlinePassed,
    MessageTooLong,
    OutOfBounds,
    Traffic,
    view,
)
from dlobd.network.channels.two_sided import Counts
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.worker import Worker

TAG, ANY = 1, 0
"""A connection has a worker of its own, so that one tag is enough."""

KEY = struct.Struct("<16sQQI")
"""Of registered memory: whose it is, address, length, and a checksum of UCX's part that follows."""

MAX_PARTS = 1024
"""Of one message: as of a vector of the kernel."""

SERVE_S = 3600.0


class UcxConnection:
    """See `dlobd.network.channels.base.Connection`.

    Args:
        link: the TCP connection beside it, this connection's to close.
        own, theirs: what each end calls itself, so that a key of another connection is none.
    """

    library = "ucx"

    def __init__(self, worker: Worker, link: socket.socket, own: bytes, theirs: bytes) -> None:
        self.peer = worker.peer
        self._worker = worker
        self._link = link
        self._own, self._theirs = own, theirs
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._counts = Counts("unknown", "")
        self._put_bytes = self._got_bytes = 0
        self._lanes: tuple[str, ...] = ()
        self._memory: list[tuple[Any, Any]] = []  # UCX's handle, and what keeps the memory
        self._rkeys: dict[bytes, Any] = {}
        self._serving: threading.Thread | None = None
        ffi = worker.ffi
        self._info = ffi.new("ucp_tag_recv_info_t *")
        self._plain = ffi.new("ucp_request_param_t *")
        self._parts = ffi.new("ucp_request_param_t *")
        self._parts.op_attr_mask, self._parts.datatype = c.OP_DATATYPE, c.DATATYPE_IOV
        self._out, self._in = ffi.new("ucp_dt_iov_t[]", MAX_PARTS), ffi.new("ucp_dt_iov_t[]", MAX_PARTS)

    # ---- messages

    def send(self, message: Buffer, deadline_s: float) -> None:
        """See the contract."""
        with self._sending:
            self._send(self._pointer(message), view(message).nbytes, self._plain, view(message).nbytes, deadline_s)

    def recv(self, into: Buffer, deadline_s: float) -> int:
        """See the contract."""
        room = view(into).nbytes
        with self._receiving:
            return self._recv(self._pointer(into), room, room, self._plain, deadline_s)

    def send_parts(self, parts: Sequence[Buffer], deadline_s: float) -> None:
        """See the contract. At most MAX_PARTS of them."""
        with self._sending:
            count, size, kept = self._filled(self._out, parts)
            self._send(self._out, count, self._parts, size, deadline_s)
            del kept

    def recv_parts(self, parts: Sequence[Buffer], deadline_s: float) -> int:
        """See the contract."""
        with self._receiving:
            count, room, kept = self._filled(self._in, parts)
            size = self._recv(self._in, count, room, self._parts, deadline_s)
            del kept
        return size

    def _send(self, buffer: Any, count: int, param: Any, size: int, deadline_s: float) -> None:
        worker = self._worker
        with worker.lock:
            self._check_open("send")
            request = worker.ucp.ucp_tag_send_nbx(worker.endpoint, buffer, count, TAG, param)
        worker.complete(request, deadline_s, "send")
        self._counts.sent_messages += 1
        self._counts.sent_bytes += size

    def _recv(self, buffer: Any, count: int, room: int, param: Any, deadline_s: float) -> int:
        worker = self._worker

        def probed() -> Any:
            message = worker.ucp.ucp_tag_probe_nb(worker.handle, TAG, ANY, 1, self._info)
            return message if message != worker.ffi.NULL else None

        message = worker.until(probed, deadline_s, "receive")
        size = int(self._info.length)
        fits = size <= room
        if fits and param is self._parts:
            count = self._cut(count, size)
        with worker.lock:
            self._check_open("receive")
            taken = (buffer, size if param is self._plain else count) if fits else (worker.ffi.NULL, 0)
            request = worker.ucp.ucp_tag_msg_recv_nbx(worker.handle, *taken, message, param if fits else self._plain)
        if not fits:
            try:
                worker.complete(request, deadline_s, "receive")
            except ChannelError:
                pass  # UCX says that it is truncated
            raise MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room}")
        worker.complete(request, deadline_s, "receive")
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
            nbytes = view(part).nbytes
            if not nbytes:
                continue
            if len(kept) == MAX_PARTS:
                raise ValueError(f"a message may have at most {MAX_PARTS} parts")
            pointer = self._pointer(part)
            vector[len(kept)].buffer, vector[len(kept)].length = pointer, nbytes
            kept.append(pointer)
            size += nbytes
        return len(kept), size, kept

    def _pointer(self, buffer: Buffer) -> Any:
        return self._worker.ffi.from_buffer(view(buffer))

    # ---- memory of the other end

    def register(self, memory: Buffer) -> bytes:
        """See the contract. From now on a thread of this end lets UCX move, as the peer may reach in at any time."""
        worker, ffi = self._worker, self._worker.ffi
        size = view(memory).nbytes
        params = ffi.new("ucp_mem_map_params_t *")
        # what holds nothing cannot be registered: nobody can reach into it
        pointer = self._pointer(memory if size else bytearray(1))
        params.field_mask, params.address, params.length = c.MEM_ADDRESS | c.MEM_LENGTH, pointer, max(size, 1)
        mapped, packed, length = ffi.new("ucp_mem_h *"), ffi.new("void **"), ffi.new("size_t *")
        with worker.lock:
            self._check_open("register")
            worker.check(worker.ucp.ucp_mem_map(worker.context.handle, params, mapped), "register memory")
            self._memory.append((mapped[0], pointer))
            worker.check(worker.ucp.ucp_rkey_pack(worker.context.handle, mapped[0], packed, length), "make a key")
            rkey = bytes(ffi.buffer(packed[0], length[0]))
            worker.ucp.ucp_rkey_buffer_release(packed[0])
            if self._serving is None:
                self._serving = threading.Thread(target=self._serve, name="dlobd-ucx-serve", daemon=True)
                self._serving.start()
        address = int(ffi.cast("uintptr_t", pointer))
        return KEY.pack(self._own, address, size, zlib.crc32(rkey)) + rkey

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        size = view(source).nbytes
        with self._sending:
            place = self._place(key, offset_bytes, size)
            if size:
                self._one_sided(self._worker.ucp.ucp_put_nbx, source, size, place, "put", deadline_s)
            self._put_bytes += size

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        size = view(into).nbytes
        with self._sending:
            place = self._place(key, offset_bytes, size)
            if size:
                self._one_sided(self._worker.ucp.ucp_get_nbx, into, size, place, "get", deadline_s)
            self._got_bytes += size

    def flush(self, deadline_s: float) -> None:
        """See the contract."""
        worker = self._worker
        with self._sending:
            with worker.lock:
                self._check_open("flush")
                request = worker.ucp.ucp_ep_flush_nbx(worker.endpoint, self._plain)
            worker.complete(request, deadline_s, "flush")

    def _one_sided(
        self, call: Callable[..., Any], memory: Buffer, size: int, place: tuple[int, Any], what: str, deadline_s: float
    ) -> None:
        worker = self._worker
        with worker.lock:
            self._check_open(what)
            request = call(worker.endpoint, self._pointer(memory), size, *place, self._plain)
        worker.complete(request, deadline_s, what)

    def _place(self, key: bytes, offset_bytes: int, size: int) -> tuple[int, Any]:
        """Address and UCX's key. UCX does not check bounds on every transport: tcp would write over the peer's heap."""
        try:
            owner, address, length, checksum = KEY.unpack_from(key)
        except struct.error:
            owner, address, length, checksum = b"", 0, 0, 0
        rkey = bytes(key[KEY.size :])
        if owner != self._theirs or zlib.crc32(rkey) != checksum:
            raise OutOfBounds(f"{self.peer} has registered no memory under this key")
        if not 0 <= offset_bytes <= length - size:
            raise OutOfBounds(f"{size} bytes at {offset_bytes} are not within the {length} that {self.peer} registered")
        if key not in self._rkeys:
            made = self._worker.ffi.new("ucp_rkey_h *")
            with self._worker.lock:
                self._check_open("use a key")
                status = self._worker.ucp.ucp_ep_rkey_unpack(self._worker.endpoint, rkey, made)
                self._worker.check(status, "use a key")
            self._rkeys[bytes(key)] = made[0]
        return address + offset_bytes, self._rkeys[key]

    def _serve(self) -> None:
        """Lets UCX move for the peer's sake, until this end closes or the other one does."""
        while True:
            try:
                self._worker.until(lambda: None, time.monotonic() + SERVE_S, "serve")
            except DeadlinePassed:
                continue
            except ChannelError:
                return

    # ---- the end

    def traffic(self) -> Traffic:
        """What it has carried; its lanes as UCX said last."""
        self._lanes = self._worker.lanes() or self._lanes
        counts = self._counts
        return Traffic(
            "unknown", "", counts.sent_messages, counts.sent_bytes, counts.received_messages, counts.received_bytes,
            self._put_bytes, self._got_bytes, self._lanes,
        )  # fmt: skip

    def close(self) -> None:
        """See the contract."""
        self._worker.end("closed")
        if self._serving is not None and self._serving is not threading.current_thread():
            self._serving.join()
        with self._sending, self._receiving:
            self.traffic()
            worker = self._worker
            with worker.lock:
                for rkey in self._rkeys.values():
                    worker.ucp.ucp_rkey_destroy(rkey)
                self._rkeys.clear()
            worker.close()
            for mapped, _ in self._memory:
                worker.ucp.ucp_mem_unmap(worker.context.handle, mapped)
            self._memory.clear()
            self._link.close()

    def _check_open(self, what: str) -> None:
        if self._worker.handle is None:
            raise Closed(f"the connection to {self.peer} is closed: UCX cannot {what}")


def name() -> bytes:
    """What an end calls itself."""
    return os.urandom(16)
