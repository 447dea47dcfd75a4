"""Ranks of the benchmark `exchange`: an all-reduce of one array, or a whole exchange of gradients.

    all-reduce   like MPI_Allreduce: without packing; a barrier before each call, outside of its time
    exchange     pack, wait for peers, wire and unpack, as in a training step

A call's time is the maximum over the ranks. `MPI_Allreduce` is MPICH's own call, the reference; the other names are
rows of the registry `exchanges`. Elements are small integers in float32, so that each order of additions gives the same
sums; each result is verified after its call.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np

from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.micro.calls import Meet
from dlobd.micro.loops import Samples
from dlobd.micro.plan import Point, Role
from dlobd.network.channels.base import Array
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.mpi import MpiPeers
from dlobd.network.exchanges.outside_step import RENDEZVOUS, OutsideStepExchange
from dlobd.network.rendezvous.pmi import PmiServer
from dlobd.network.rendezvous.store import KeyValueStore

MPI_ALLREDUCE = "MPI_Allreduce"
PORT = 23456  # port of TensorFlow's servers; all ports of a namespace are free
FUSION_BYTES = 64 << 20
FEWEST_CALLS, MOST_CALLS = 3, 2000
LARGEST = 8  # largest absolute value of an element

Call = Callable[[], tuple[int, Sequence[Any]]]
"""Function that returns the time of one call in nanoseconds, and the sums."""


def drive(role: Role, ready: Callable[[str], None]) -> None:
    """Serve the key-value store and the PMI server of the ranks until stdin ends. The driver is a separate process,
    because MPI_Init blocks the other threads."""
    host, ranks, secret = role.addresses[0], len(role.addresses), role.secret.encode()
    with closing(KeyValueStore(host, ranks, secret)) as book, closing(PmiServer(host, ranks, secret)) as pmi:
        ready(json.dumps({"address": book.address, "pmi": pmi.address, "secret": role.secret}))
        sys.stdin.read()


class Rank:
    """Rank that has joined the exchange of a role."""

    def __init__(self, role: Role) -> None:
        os.environ[RENDEZVOUS] = role.book
        route = role.route
        self._role = role
        self._is_mpi = route.exchange == MPI_ALLREDUCE
        settings = Settings(Channel(route.channel), route.library, FUSION_BYTES, route.servers)
        self._exchange = EXCHANGES.get("mpi" if self._is_mpi else route.exchange)(settings)
        peers = [f"{address}:{PORT + rank}" for rank, address in enumerate(role.addresses)]
        self._tf = _tensorflow(self._exchange, peers, role.rank)
        self._exchange.join(self._tf, peers, role.rank)

    def measure(self, point: Point, meet: Meet) -> Samples:
        """Run a point. Returns this rank's time of each call."""
        samples, shapes = Samples(), point.shapes
        arrays = [_elements(self._role.rank, number, shape) for number, shape in enumerate(shapes)]
        ranks = range(len(self._role.addresses))
        sums = [sum(_elements(rank, number, shape) for rank in ranks) for number, shape in enumerate(shapes)]
        call = self._call(point, arrays)
        self._once(call, sums, samples)  # connections are established at the first call
        time_s = self._once(call, sums, samples) / 1e9
        slowest_s = max(map(float, meet(f"first {point.payload.name}", str(time_s))))
        calls = min(point.calls or MOST_CALLS, max(FEWEST_CALLS, round(point.seconds / max(slowest_s, 1e-6))))
        samples.times_ns += [self._once(call, sums, samples) for _ in range(calls)]
        return samples

    def close(self) -> None:
        self._exchange.close()

    def _once(self, call: Call, sums: Sequence[Any], samples: Samples) -> int:
        time_ns, results = call()
        if self._exchange.synchronous:  # asynchronous servers return partial sums
            samples.bad += any(not np.array_equal(got, want) for got, want in zip(results, sums, strict=True))
        return time_ns

    def _call(self, point: Point, arrays: Sequence[Array]) -> Call:
        """Return a function that returns the time of one call and the sums."""
        exchange, tf, ranks, clock = self._exchange, self._tf, len(self._role.addresses), time.perf_counter_ns

        def timed(reduce: Callable[[], Sequence[Any]]) -> tuple[int, Sequence[Any]]:
            start_ns = clock()
            means = reduce()
            time_ns = clock() - start_ns
            return time_ns, [np.rint(np.asarray(mean) * ranks) for mean in means]

        if exchange.inside_step:
            with exchange.scope():
                tensors = [tf.constant(array) for array in arrays]
            inside = tf.function(lambda *given: exchange.reduce(tf, given, ranks), autograph=False)
            return lambda: timed(lambda: [one.numpy() for one in exchange.run(inside, tensors)])
        if point.whole:
            return lambda: timed(lambda: exchange.reduce(tf, arrays, ranks))
        (original,) = arrays
        array = original.copy()
        assert isinstance(exchange, OutsideStepExchange)
        peers = exchange.peers
        assert peers is not None
        deadline_s = time.monotonic() + self._role.deadline_s
        number = 0

        def all_reduced() -> tuple[int, Sequence[Any]]:
            nonlocal number
            array[...] = original
            if self._is_mpi:
                assert isinstance(peers, MpiPeers)
                peers.session.barrier().Wait()
                start_ns = clock()
                peers.session.all_reduce(array)
                return clock() - start_ns, [array]
            peers.barrier(number, deadline_s)
            number += 1
            start_ns = clock()
            peers.all_reduce(array, deadline_s)
            return clock() - start_ns, [array]

        return all_reduced


def _elements(rank: int, number: int, shape: tuple[int, ...]) -> Array:
    drawn = np.random.default_rng((rank, number))
    return drawn.integers(-LARGEST, LARGEST + 1, shape).astype(np.float32)


def _tensorflow(exchange: Any, peers: Sequence[str], rank: int) -> Any:
    """Return TensorFlow for TensorFlow's exchanges, otherwise a stand-in, because dlobd's exchanges need only
    arrays."""
    if exchange.inside_step or type(exchange).__module__.rpartition(".")[2].startswith("tf_"):
        os.environ.update(exchange.environment(peers, rank))
        import tensorflow

        return tensorflow
    return SimpleNamespace(constant=lambda array: array)
