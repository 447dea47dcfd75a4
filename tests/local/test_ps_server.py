"""A parameter server: its protocol and its sums; workers are threads, over loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlobd.network.channels.base import Connection
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.exchanges.ps import servers
from dlobd.network.exchanges.ps.servers import AsynchronousServer, SynchronousServer
from tests.ranks import on_ranks, soon

ELEMENTS = 1000


class Workers:
    """Connections of workers to a server."""

    def __init__(self, workers: int, within_s: float = 10.0, make: type[servers.Server] = SynchronousServer) -> None:
        self._channel = SocketsChannel()
        listener = self._channel.listen()
        self.connections: list[Connection] = []
        served: dict[int, Connection] = {}
        for rank in range(workers):
            self.connections.append(self._channel.connect(listener.address, soon()))
            served[rank] = listener.accept(soon())
        self._server = threading.Thread(target=make(0, served, within_s).serve)
        self._server.start()

    def close(self) -> bool:
        """Return True if the server has ended with its workers."""
        self._channel.close()
        self._server.join(30)
        return not self._server.is_alive()

    def push(self, rank: int, values: NDArray[Any]) -> str:
        """Push and return the server's text once all have pushed."""
        connection = self.connections[rank]
        connection.send(json.dumps([values.dtype.str, values.size, 0, 0]).encode(), soon())
        connection.send(values, soon())
        said = bytearray(servers.TEXT_BYTES)
        return said[: connection.recv(said, soon())].decode()

    def pull(self, rank: int, like: NDArray[Any]) -> NDArray[Any]:
        flag, found = bytearray(1), np.empty_like(like)
        assert self.connections[rank].recv_parts([flag, found], soon()) == 1 + found.nbytes
        assert bytes(flag) == servers.OK
        return found


@pytest.fixture
def three() -> Iterator[Workers]:
    """Three workers and their server, which must end with them."""
    workers = Workers(3)
    yield workers
    assert workers.close()


def values(rank: int, call: int = 0) -> NDArray[np.float32]:
    """Return numbers of very different sizes, whose sum depends on the order."""
    random = np.random.default_rng(10 * call + rank)
    return (random.standard_normal(ELEMENTS) * 10.0 ** random.integers(-6, 6, ELEMENTS)).astype(np.float32)


def test_all_get_the_sum_in_the_order_of_the_ranks(three: Workers) -> None:
    order = [threading.Event() for _ in range(3)]
    order[2].set()

    def work(rank: int) -> list[bytes]:
        found = []
        for call in range(3):
            order[rank].wait(30)  # rank 2 pushes first, rank 0 last
            order[rank - 1].set()
            assert three.push(rank, values(rank, call)) == ""
            found.append(three.pull(rank, values(rank)).tobytes())
        return found

    expected = [(values(0, call) + values(1, call) + values(2, call)).tobytes() for call in range(3)]
    assert on_ranks(3, work) == [expected] * 3


def test_a_call_of_another_form_has_memory_of_its_own(three: Workers) -> None:
    def work(rank: int) -> list[float]:
        found = []
        for given in (np.full(5, rank, np.float64), np.full(2, 1, np.int32), np.full(5, rank, np.float64)):
            assert three.push(rank, given) == ""
            found.append(float(three.pull(rank, given)[0]))
        return found

    assert on_ranks(3, work) == [[3.0, 3.0, 3.0]] * 3


def test_a_dead_worker_is_named_to_the_others(three: Workers) -> None:
    def work(rank: int) -> str:
        if rank == 1:
            three.connections[rank].close()
            return "rank 1"
        return three.push(rank, values(rank))

    assert all("rank 1" in said for said in on_ranks(3, work))


def test_the_reason_of_a_failed_worker_is_sent_to_the_others(three: Workers) -> None:
    def work(rank: int) -> str:
        if rank == 0:
            three.connections[rank].send(json.dumps("ps-7 is gone").encode(), soon())
            return "ps-7 is gone"
        return three.push(rank, values(rank))

    assert on_ranks(3, work) == ["ps-7 is gone"] * 3


def test_a_late_worker_is_named() -> None:
    workers = Workers(3, within_s=0.3)
    said = on_ranks(2, lambda rank: workers.push(rank, values(rank)))
    assert said == ["rank 2 did not push in time"] * 2
    assert workers.close()


def test_workers_must_push_the_same_shapes(three: Workers) -> None:
    said = on_ranks(3, lambda rank: three.push(rank, values(rank)[: ELEMENTS - (rank == 2)]))
    assert all("rank 2 pushed other shapes" in line for line in said)


def test_a_server_ends_once_all_have_left(three: Workers) -> None:
    for connection in three.connections:
        connection.send(b"", soon())
    three._server.join(30)
    assert not three._server.is_alive()


def test_an_asynchronous_server_returns_all_pushes_since_the_last_call() -> None:
    workers = Workers(2, make=AsynchronousServer)

    def call(rank: int, value: float, buffer: int = 0) -> float:
        given = np.full(3, value)
        connection = workers.connections[rank]
        connection.send(json.dumps([given.dtype.str, given.size, buffer, 0]).encode(), soon())
        connection.send(given, soon())
        found = workers.pull(rank, given)
        assert len(set(found)) == 1
        return float(found[0])

    assert [call(0, 1), call(0, 2), call(1, 4), call(0, 8), call(0, 16)] == [1, 2, 7, 12, 16]
    assert [call(0, 1, buffer=1), call(1, 0)] == [1, 24]
    workers.connections[1].send(b"", soon())
    assert [call(0, 32), call(0, 64)] == [32, 64]
    workers.connections[0].send(json.dumps("it went wrong").encode(), soon())
    assert workers.close()
