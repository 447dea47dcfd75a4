"""Messages and one-sided access to memory over a UCX endpoint.

A message is one tagged send. Its tag is its number and its length. The receiver posts its buffer for the next number
with the buffer's length, so that UCX writes a message of this length to its place. A message of another length stays in
UCX's memory and is found by its number: a shorter one is copied, and one that does not fit is rejected and leaves the
buffer unchanged. UCX takes buffers by their address; Python copies nothing.
"""

import math
import socket
import struct
import threading
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dlobd.network.channels import base
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.library import CData
from dlobd.network.channels.ucx.worker import Sleeper, Worker

KEY = struct.Struct("<16sQQI")
"""Key of registered memory: ID of its end, address, length, and a checksum of UCX's own key, which follows."""

LENGTH_BITS = 40  # low bits of a tag: length of the message in bytes
NUMBERS = 1 << (64 - LENGTH_BITS)  # numbers of messages repeat after as many
THIS_NUMBER, THIS_TAG = (NUMBERS - 1) << LENGTH_BITS, (1 << 64) - 1  # masks of tags

ATOMIC_BYTES = 4096
"""A message of this length is one packet: UCX's segments have 8 KiB. It is not torn if its sender gives up."""
MAX_PARTS = 1024  # maximum number of parts of a message, as in the kernel's vectors


class UcxConnection(base.Connection):
    """One end of a connection. It closes the TCP connection `link`, and releases its worker from the context.

    `own` and `theirs` are random IDs of the ends, so that a key of another connection is rejected.
    """

    library = "ucx"

    def __init__(self, worker: Worker, link: socket.socket, own: bytes, theirs: bytes) -> None:
        self.peer = worker.peer
        self.traffic = base.Traffic("unknown", "")
        self._worker = worker
        self._link = link
        self._own, self._theirs = own, theirs
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._finishing = threading.Lock()
        self._sender, self._receiver, self._finisher = worker.sleeper(), worker.sleeper(), worker.sleeper()
        self._out_number = self._in_number = 0  # numbers of the next messages
        self._begun: list[tuple[Any, ...]] = []  # started sends and receives: request first, memory last
        self._registered: list[tuple[CData, CData]] = []  # UCX's handle, and the object that keeps the memory alive
        self._rkeys: dict[bytes, CData] = {}
        self._serving: threading.Thread | None = None
        self._closing, self._closed = threading.Lock(), False
        ffi = worker.ffi
        self._memory = ffi.from_buffer  # address and length of a contiguous buffer
        self._info = ffi.new("ucp_tag_recv_info_t *")
        self._plain = ffi.new("ucp_request_param_t *")
        self._parts = ffi.new("ucp_request_param_t *")
        self._parts.op_attr_mask, self._parts.datatype = c.OP_DATATYPE, c.DATATYPE_IOV
        self._out, self._in = ffi.new("ucp_dt_iov_t[]", MAX_PARTS), ffi.new("ucp_dt_iov_t[]", MAX_PARTS)

    # ---- messages

    def send(self, message: base.Buffer, deadline_s: float) -> None:
        with self._sending:
            memory = self._memory(message)
            self._send(memory, len(memory), self._plain, len(memory), memory, deadline_s)

    def begin_send(self, message: base.Buffer) -> CData:
        """Start to send; return None if UCX has taken the bytes already."""
        memory = self._memory(message)
        size = len(memory)
        with self._worker.lock:  # `close` must find the request
            if not (request := self._start(memory, size, self._plain, size)):
                return None
            self._begun.append(begun := (request, memory))
            return begun

    def finish_send(self, begun: CData, deadline_s: float) -> None:
        request, memory = begun
        with self._finishing:  # without the lock `_sending`, because other sends may start meanwhile
            self._worker.check_open("send")  # afterwards `close` waits for this lock
            self._begun.remove(begun)
            self._worker.complete(request, memory, self._finisher, deadline_s, "send")

    def recv(self, into: base.Buffer, deadline_s: float) -> int:
        with self._receiving:
            memory = self._memory(into)
            posted = self._post(memory, len(memory), self._plain, len(memory))
            return self._recv(posted, memory, len(memory), len(memory), self._plain, memory, deadline_s)

    def begin_recv(self, into: base.Buffer) -> CData:
        with self._receiving:
            memory = self._memory(into)
            self._begun.append(begun := (*self._post(memory, len(memory), self._plain, len(memory)), memory))
            return begun

    def finish_recv(self, begun: CData, deadline_s: float) -> int:
        *posted, memory = begun
        with self._receiving:
            self._worker.check_open("receive")  # afterwards `close` waits for this lock
            self._begun.remove(begun)
            return self._recv(posted, memory, len(memory), len(memory), self._plain, memory, deadline_s)

    def send_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> None:
        """Send at most MAX_PARTS parts as one message."""
        with self._sending:
            count, size, kept = self._filled(self._out, parts)
            self._send(self._out, count, self._parts, size, kept, deadline_s)

    def recv_parts(self, parts: Sequence[base.Buffer], deadline_s: float) -> int:
        with self._receiving:
            count, room, kept = self._filled(self._in, parts)
            posted = self._post(self._in, count, self._parts, room)
            return self._recv(posted, self._in, count, room, self._parts, kept, deadline_s)

    def _send(self, buffer: CData, count: int, param: CData, size: int, memory: CData, deadline_s: float) -> None:
        if request := self._start(buffer, count, param, size):
            self._worker.complete(request, memory, self._sender, deadline_s, "send")

    def _start(self, buffer: CData, count: int, param: CData, size: int) -> int:
        """Start to send; return UCX's request, or 0 if UCX has taken the bytes at once."""
        worker = self._worker
        with worker.lock:  # two threads may send at once: one starts a send, the other finishes its own
            worker.check_open("send")
            tag = self._out_number << LENGTH_BITS | size
            request: int = worker.ucp.ucp_tag_send_nbx(worker.endpoint, buffer, count, tag, param)
            if request < 0:
                worker.check(request, "send")
            self._out_number = (self._out_number + 1) % NUMBERS
            self.traffic.sent_messages += 1
            self.traffic.sent_bytes += size
            return request

    def _post(self, buffer: CData, count: int, param: CData, room: int) -> tuple[int, int]:
        """Post memory for the next message; return UCX's request, or its status, and the tag."""
        worker, tag = self._worker, self._in_number << LENGTH_BITS | room
        with worker.lock:
            worker.check_open("receive")
            request: int = worker.ucp.ucp_tag_recv_nbx(worker.handle, buffer, count, tag, THIS_TAG, param)
        self._in_number = (self._in_number + 1) % NUMBERS
        return request, tag

    def _recv(
        self,
        posted: Sequence[int],
        buffer: CData,
        count: int,
        room: int,
        param: CData,
        memory: CData,
        deadline_s: float,
    ) -> int:
        """Wait for a message for which memory was posted; return its length."""
        worker, ucp, size = self._worker, self._worker.ucp, room
        request, tag = posted
        if waits := request != c.OK:

            def other_length() -> CData:
                return ucp.ucp_tag_probe_nb(worker.handle, tag, THIS_NUMBER, 1, self._info)

            message = worker.complete(request, memory, self._receiver, deadline_s, "receive", other_length)
            if message is not True:
                size = int(self._info.length)
                waits = self._take(message, buffer, count, room, param, memory, deadline_s)
        if size > room:
            raise base.MessageTooLong(f"a message of {size} bytes from {self.peer} does not fit into {room} bytes")
        if waits and size > ATOMIC_BYTES:
            worker.check_trust("receive")
        self.traffic.received_messages += 1
        self.traffic.received_bytes += size
        return size

    def _take(
        self, message: CData, buffer: CData, count: int, room: int, param: CData, memory: CData, deadline_s: float
    ) -> bool:
        """Receive a message of another length than the buffer, or discard it; return True if it had to wait."""
        worker, size = self._worker, int(self._info.length)
        if size > room:
            buffer, count, param = worker.ffi.NULL, 0, self._plain
        elif param is self._plain:
            count = size
        else:
            count = self._cut(count, size)
        with worker.lock:
            worker.check_open("receive")
            request = worker.ucp.ucp_tag_msg_recv_nbx(worker.handle, buffer, count, message, param)
        with suppress(*[base.ChannelError] if size > room else []):  # UCX reports a truncated message
            worker.complete(request, memory, self._receiver, deadline_s, "receive")
        return bool(request != c.OK)

    def _cut(self, count: int, size: int) -> int:
        """Shorten the vector of parts to a message of `size` bytes; return the number of parts."""
        for number in range(count):
            if self._in[number].length >= size:
                self._in[number].length = size
                return number + 1
            size -= self._in[number].length
        return count

    def _filled(self, vector: CData, parts: Sequence[base.Buffer]) -> tuple[int, int, list[CData]]:
        """Fill a vector with the non-empty parts; return their count, bytes, and memory to keep alive."""
        kept: list[CData] = []
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

    # ---- one-sided access, by one thread at a time

    def register(self, memory: base.Buffer) -> bytes:
        """Register memory, and start a thread that makes progress, because the peer may access memory at any time."""
        worker, ffi = self._worker, self._worker.ffi
        size = base.view(memory).nbytes
        params = ffi.new("ucp_mem_map_params_t *")
        # empty memory cannot be registered
        pointer = ffi.from_buffer(base.view(memory if size else bytearray(1)))
        params.field_mask, params.address, params.length = c.MEM_ADDRESS | c.MEM_LENGTH, pointer, max(size, 1)
        mapped, packed, length = ffi.new("ucp_mem_h *"), ffi.new("void **"), ffi.new("size_t *")
        with worker.lock:
            worker.check_open("register")
            worker.check(worker.ucp.ucp_mem_map(worker.context.handle, params, mapped), "register memory")
            self._registered.append((mapped[0], pointer))
            worker.check(worker.ucp.ucp_rkey_pack(worker.context.handle, mapped[0], packed, length), "make a key")
            rkey = bytes(ffi.buffer(packed[0], length[0]))
            worker.ucp.ucp_rkey_buffer_release(packed[0])
            if self._serving is None:
                self._serving = threading.Thread(
                    target=self._serve, args=(worker.sleeper(),), name="dlobd-ucx-serve", daemon=True
                )
                self._serving.start()
        address = int(ffi.cast("uintptr_t", pointer))
        return KEY.pack(self._own, address, size, zlib.crc32(rkey)) + rkey

    def put(self, source: base.Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        with self._sending:
            self._access("put", source, key, offset_bytes, deadline_s)
            self.traffic.put_bytes += base.view(source).nbytes

    def get(self, into: base.Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        with self._sending:
            if self._access("get", into, key, offset_bytes, deadline_s):
                self._worker.check_peer("get")  # the owner may have freed the memory
            self.traffic.got_bytes += base.view(into).nbytes

    def flush(self, deadline_s: float) -> None:
        worker = self._worker
        with self._sending:
            with worker.lock:
                worker.check_peer("flush")
                request = worker.ucp.ucp_ep_flush_nbx(worker.endpoint, self._plain)
            worker.complete(request, None, self._sender, deadline_s, "flush")
            worker.check_peer("flush")  # UCX writes into shared memory even if its owner is gone

    def _access(self, what: str, buffer: base.Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> int:
        """Call UCX's put or get, wait for it, and return the number of bytes."""
        worker, size = self._worker, base.view(buffer).nbytes
        place = self._place(key, offset_bytes, size)
        if size:
            call = worker.ucp.ucp_put_nbx if what == "put" else worker.ucp.ucp_get_nbx
            memory = self._memory(base.view(buffer))
            with worker.lock:
                worker.check_peer(what)
                request = call(worker.endpoint, memory, size, *place, self._plain)
            worker.complete(request, memory, self._sender, deadline_s, what)
        return size

    def _place(self, key: bytes, offset_bytes: int, size: int) -> tuple[int, CData]:
        """Return remote address and UCX's key. Check bounds, because UCX on tcp would overwrite the heap."""
        try:
            owner, address, length, checksum = KEY.unpack_from(key)
        except struct.error:
            owner, address, length, checksum = b"", 0, 0, 0
        rkey = bytes(key[KEY.size :])
        if owner != self._theirs or zlib.crc32(rkey) != checksum:
            raise base.OutOfBounds(f"{self.peer} has registered no memory with this key")
        if not 0 <= offset_bytes <= length - size:
            raise base.OutOfBounds(f"{size} bytes at offset {offset_bytes} exceed the {length} bytes of {self.peer}")
        if key not in self._rkeys:
            worker, made = self._worker, self._worker.ffi.new("ucp_rkey_h *")
            with worker.lock:
                worker.check_open("use a key")
                worker.check(worker.ucp.ucp_ep_rkey_unpack(worker.endpoint, rkey, made), "use a key")
            self._rkeys[bytes(key)] = made[0]
        return address + offset_bytes, self._rkeys[key]

    def _serve(self, sleeper: Sleeper) -> None:
        """Make progress for the peer until either end closes."""
        with suppress(base.ChannelError):
            self._worker.until(lambda: None, sleeper, math.inf, "serve")

    # ---- closing

    def update_lanes(self) -> base.Traffic:
        """Return the traffic totals, with the lanes that UCX reported last."""
        self.traffic.lanes = self._worker.lanes() or self.traffic.lanes
        return self.traffic

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            worker = self._worker
            worker.end("closed")  # wakes the serving thread
            if self._serving is not None and self._serving is not threading.current_thread():
                self._serving.join()
            with self._sending, self._receiving, self._finishing:
                self.update_lanes()
                with worker.lock:
                    for request, *_, memory in self._begun:
                        if request > 0:
                            worker.release(request, memory, "a started call was never finished")
                    for rkey in self._rkeys.values():  # before the endpoint is closed
                        worker.ucp.ucp_rkey_destroy(rkey)
                    self._rkeys.clear()
                worker.close()
                for mapped, _ in self._registered:  # after the endpoint is closed
                    worker.ucp.ucp_mem_unmap(worker.context.handle, mapped)
                self._registered.clear()
                self._link.close()
                worker.context.leave()
