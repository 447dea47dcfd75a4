"""Ranks as threads of one process, connected by any channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from dlobd.network.channels.base import OpenChannel
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.collectives.mesh import AllGather, Mesh

PATIENCE_S = 30.0

T = TypeVar("T")


def soon() -> float:
    """Return a deadline that every healthy machine meets."""
    return time.monotonic() + PATIENCE_S


class Meeting:
    """An all-gather between threads."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=PATIENCE_S)
        self._values: dict[str, list[str]] = {}
        self._size = size
        self._lock = threading.Lock()

    def of(self, rank: int) -> AllGather:
        def all_gather(name: str, value: str) -> list[str]:
            with self._lock:
                self._values.setdefault(name, [""] * self._size)[rank] = value
            self._barrier.wait()
            return self._values[name]

        return all_gather


def on_ranks(size: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(rank)` in a thread per rank and return the results; raise the first error."""
    with ThreadPoolExecutor(size) as pool:
        return [future.result(PATIENCE_S) for future in [pool.submit(work, rank) for rank in range(size)]]


def with_mesh(
    size: int,
    partners: Callable[[int, int], set[int]],
    work: Callable[[Mesh], T],
    make: Callable[[], OpenChannel] = SocketsChannel,
) -> list[T]:
    """Run `work(mesh)` on each rank and return the results; close meshes and channels."""
    meeting = Meeting(size)

    def rank_of(rank: int) -> T:
        channel: Any = make()
        try:
            mesh = Mesh.join(rank, size, partners(rank, size), channel, meeting.of(rank), soon())
            try:
                return work(mesh)
            finally:
                mesh.close()
        finally:
            channel.close()

    return on_ranks(size, rank_of)
