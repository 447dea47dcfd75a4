"""Access to the peer's memory over a UCX endpoint, and to this end's by the peer."""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from dlobd.network.channels.base import Buffer, ChannelError, DeadlinePassed, OutOfBounds, view
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.sleeper import Sleeper
from dlobd.network.channels.ucx.worker import Worker

KEY = struct.Struct("<16sQQI")
"""Of registered memory: whose it is, address, length, and a checksum of UCX's part that follows."""

SERVE_S = 3600.0


class OneSided:
    """Of one connection; one thread at a time puts, gets and flushes.

    Attributes:
        put_bytes, got_bytes: so far.

    Args:
        sleeper: of the thread that puts, gets and flushes.
        own, theirs: what each end calls itself, so that a key of another connection is none.
    """

    def __init__(self, worker: Worker, sleeper: Sleeper, own: bytes, theirs: bytes) -> None:
        self.put_bytes = self.got_bytes = 0
        self._worker = worker
        self._sleeper = sleeper
        self._own, self._theirs = own, theirs
        self._plain = worker.ffi.new("ucp_request_param_t *")
        self._memory: list[tuple[Any, Any]] = []  # UCX's handle, and what keeps the memory
        self._rkeys: dict[bytes, Any] = {}
        self._serving: threading.Thread | None = None

    def register(self, memory: Buffer) -> bytes:
        """See `UcxConnection`."""
        worker, ffi = self._worker, self._worker.ffi
        size = view(memory).nbytes
        params = ffi.new("ucp_mem_map_params_t *")
        # what holds nothing cannot be registered: nobody can reach into it
        pointer = ffi.from_buffer(view(memory if size else bytearray(1)))
        params.field_mask, params.address, params.length = c.MEM_ADDRESS | c.MEM_LENGTH, pointer, max(size, 1)
        mapped, packed, length = ffi.new("ucp_mem_h *"), ffi.new("void **"), ffi.new("size_t *")
        with worker.lock:
            worker.check_open("register")
            worker.check(worker.ucp.ucp_mem_map(worker.context.handle, params, mapped), "register memory")
            self._memory.append((mapped[0], pointer))
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

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        size = view(source).nbytes
        place = self._place(key, offset_bytes, size)
        if size:
            self._call(self._worker.ucp.ucp_put_nbx, source, size, place, "put", deadline_s)
        self.put_bytes += size

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """See the contract."""
        size = view(into).nbytes
        place = self._place(key, offset_bytes, size)
        if size:
            self._call(self._worker.ucp.ucp_get_nbx, into, size, place, "get", deadline_s)
            self._worker.check_peer("get")  # what was read may have been given back by its owner
        self.got_bytes += size

    def flush(self, deadline_s: float) -> None:
        """See the contract."""
        worker = self._worker
        with worker.lock:
            worker.check_peer("flush")
            request = worker.ucp.ucp_ep_flush_nbx(worker.endpoint, self._plain)
        worker.complete(request, None, self._sleeper, deadline_s, "flush")
        worker.check_peer("flush")  # UCX writes into shared memory of an owner that has gone

    def _call(
        self, call: Callable[..., Any], buffer: Buffer, size: int, place: tuple[int, Any], what: str, deadline_s: float
    ) -> None:
        worker = self._worker
        memory = worker.ffi.from_buffer(view(buffer))
        with worker.lock:
            worker.check_peer(what)
            request = call(worker.endpoint, memory, size, *place, self._plain)
        worker.complete(request, memory, self._sleeper, deadline_s, what)

    def _place(self, key: bytes, offset_bytes: int, size: int) -> tuple[int, Any]:
        """Address and UCX's key. UCX does not check bounds on every transport: tcp would write over the peer's heap."""
        try:
            owner, address, length, checksum = KEY.unpack_from(key)
        except struct.error:
            owner, address, length, checksum = b"", 0, 0, 0
        rkey = bytes(key[KEY.size :])
        if owner != self._theirs or zlib.crc32(rkey) != checksum:
            raise OutOfBounds(f"{self._worker.peer} has registered no memory under this key")
        if not 0 <= offset_bytes <= length - size:
            raise OutOfBounds(
                f"{size} bytes at {offset_bytes} are not within the {length} that {self._worker.peer} registered"
            )
        if key not in self._rkeys:
            made = self._worker.ffi.new("ucp_rkey_h *")
            with self._worker.lock:
                self._worker.check_open("use a key")
                status = self._worker.ucp.ucp_ep_rkey_unpack(self._worker.endpoint, rkey, made)
                self._worker.check(status, "use a key")
            self._rkeys[bytes(key)] = made[0]
        return address + offset_bytes, self._rkeys[key]

    def stop(self) -> None:
        """No thread of this end serves any more; the worker has ended, so that it wakes."""
        if self._serving is not None and self._serving is not threading.current_thread():
            self._serving.join()

    def forget_keys(self) -> None:
        """Before the endpoint is closed."""
        with self._worker.lock:
            for rkey in self._rkeys.values():
                self._worker.ucp.ucp_rkey_destroy(rkey)
            self._rkeys.clear()

    def unregister(self) -> None:
        """After the endpoint is closed."""
        for mapped, _ in self._memory:
            self._worker.ucp.ucp_mem_unmap(self._worker.context.handle, mapped)
        self._memory.clear()

    def _serve(self, sleeper: Sleeper) -> None:
        """Lets UCX move for the peer's sake, until this end closes or the other one does."""
        while True:
            try:
                self._worker.until(lambda: None, sleeper, time.monotonic() + SERVE_S, "serve")
            except DeadlinePassed:
                continue
            except ChannelError:
                return
