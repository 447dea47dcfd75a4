"""Measures an all-reduce, or a whole exchange, between rank processes on separate hosts.

    python -m dlobd.microbench.ranks PLAN            runs a rank, or the driver, which prints the address of its store

all-reduce   of an array of float32, like MPI_Allreduce: without packing, and without a barrier between calls
exchange     of tensors: pack, wait for peers, wire and unpack, as in a training step

A figure is a mean over `calls` after a warm-up call, and the maximum over all ranks. `MPI_Allreduce` is MPICH's own
call, the reference; the other names are rows of the registry `exchanges`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.fields import decoded
from dlobd.microbench.hosts import Host, HostProcess
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.mpi import MpiPeers
from dlobd.network.exchanges.outside_step import RENDEZVOUS, OutsideStepExchange
from dlobd.network.rendezvous.pmi import PmiServer
from dlobd.network.rendezvous.store import KeyValueStore

PATIENCE_S = 120.0  # timeout for the exit of a rank. Exchanges have their own deadlines.
SECRET = "of a micro-benchmark"
MPI_ALLREDUCE = "MPI_Allreduce"
DRIVER = -1
PORT = 23456  # port of TensorFlow's servers; all ports of a namespace are free


@dataclass(frozen=True, slots=True)
class Work:
    """Measurement of an all-reduce of one float32 array, or (`whole`) of an exchange of float32 tensors."""

    shapes: tuple[tuple[int, ...], ...]
    calls: int
    whole: bool

    @property
    def bytes(self) -> int:
        return sum(4 * int(np.prod(shape)) for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Plan:
    """Role and measurements of one process."""

    exchange: str
    channel: str
    library: str
    servers: int
    rank: int  # rank, or DRIVER for the process with the key-value store and the PMI server
    addresses: tuple[str, ...]
    book: str  # the value of RENDEZVOUS, which the driver prints
    works: tuple[Work, ...]


def measured(
    exchange: str, channel: str, library: str, hosts: Sequence[Host], works: Sequence[Work], servers: int = 1
) -> list[float]:
    """Return the seconds per call of each measurement.

    Args:
        exchange: a row of the registry, or MPI_ALLREDUCE.
        hosts: hosts of the ranks.

    Raises SetupError: a rank failed.
    """
    first = Plan(exchange, channel, library, servers, DRIVER, tuple(host.address for host in hosts), "", tuple(works))
    with ExitStack() as opened:
        # the driver is a separate process, because MPI_Init blocks the other threads
        book = opened.enter_context(_process(first, hosts[0])).line()
        ranks = [
            opened.enter_context(_process(replace(first, rank=rank, book=book), host))
            for rank, host in enumerate(hosts)
        ]
        seconds = [json.loads(rank.line()) for rank in ranks]
        for rank in ranks:
            rank.ended()
    return [max(of_ranks) for of_ranks in zip(*seconds, strict=True)]


def _process(plan: Plan, host: Host) -> HostProcess:
    name = f"rank {plan.rank}" if plan.rank >= 0 else "the driver"
    return HostProcess("dlobd.microbench.ranks", plan, host, f"Exchange {plan.exchange} failed in {name}", PATIENCE_S)


def main() -> None:
    """Run the rank or the driver that the first argument describes."""
    plan: Plan = decoded(Plan, json.loads(sys.argv[1]))
    if plan.rank == DRIVER:
        _drive(plan)
        return
    os.environ[RENDEZVOUS] = plan.book
    name = "mpi" if plan.exchange == MPI_ALLREDUCE else plan.exchange
    exchange = EXCHANGES.get(name)(Settings(Channel.parse(plan.channel), plan.library, 64 << 20, plan.servers))
    peers = [f"{address}:{PORT + rank}" for rank, address in enumerate(plan.addresses)]
    tf = _tensorflow(exchange, peers, plan.rank)
    exchange.join(tf, peers, plan.rank)
    seconds = [_seconds(_call(plan, exchange, tf, work), work.calls) for work in plan.works]
    print(json.dumps(seconds), flush=True)
    exchange.close()


def _drive(plan: Plan) -> None:
    """Serve until stdin ends or the process is killed."""
    host, ranks, secret = plan.addresses[0], len(plan.addresses), SECRET.encode()
    with closing(KeyValueStore(host, ranks, secret)) as book, closing(PmiServer(host, ranks, secret)) as pmi:
        print(json.dumps({"address": book.address, "pmi": pmi.address, "secret": SECRET}), flush=True)
        sys.stdin.read()


def _tensorflow(exchange: Any, peers: Sequence[str], rank: int) -> Any:
    """Return TensorFlow for TensorFlow's exchanges, otherwise a stand-in, because dlobd's exchanges need only
    arrays."""
    if exchange.inside_step or type(exchange).__module__.rpartition(".")[2].startswith("tf_"):
        os.environ.update(exchange.environment(peers, rank))
        import tensorflow

        return tensorflow
    return SimpleNamespace(constant=lambda array: array)


def _call(plan: Plan, exchange: Any, tf: Any, work: Work) -> Callable[[], Any]:
    random = np.random.default_rng(plan.rank)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in work.shapes]
    ranks = len(plan.addresses)
    if exchange.inside_step:
        with exchange.scope():
            tensors = [tf.constant(array) for array in arrays]
        inside = tf.function(lambda *given: exchange.reduce(tf, given, ranks), autograph=False)
        return lambda: exchange.run(inside, tensors)[0].numpy()
    if work.whole:
        return lambda: exchange.reduce(tf, arrays, ranks)
    (array,) = arrays
    assert isinstance(exchange, OutsideStepExchange)
    peers = exchange.peers
    assert peers is not None
    if plan.exchange == MPI_ALLREDUCE:
        assert isinstance(peers, MpiPeers)
        return lambda: peers.session.all_reduce(array)
    return lambda: peers.all_reduce(array, time.monotonic() + PATIENCE_S)


def _seconds(call: Callable[[], Any], calls: int) -> float:
    call()
    start_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start_s) / calls


if __name__ == "__main__":
    main()
