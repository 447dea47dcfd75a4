"""Parameter servers: ranks are threads, each with its real server process, on loopback."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dlobd import spans as kinds
from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges import outside_step
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.ps.exchange import AsynchronousParameterServer, ParameterServer, PsPeers
from dlobd.network.rendezvous.store import KeyValueStore
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from tests.exchange_rank import gradients
from tests.ranks import on_ranks
from tests.recorded import read_all

RANK = Path(__file__).parents[1] / "exchange_rank.py"
SECRET = "of this test"

Make = Callable[..., "tuple[list[ParameterServer], tuple[str, ...]]"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make the exchanges of several ranks, and the addresses of their launcher."""
    stores: list[KeyValueStore] = []
    every: list[ParameterServer] = []

    def make(
        ranks: int,
        servers: int,
        library: str = "sockets",
        fusion_bytes: int = 1 << 20,
        kind: type[ParameterServer] = ParameterServer,
    ) -> Any:
        stores.append(KeyValueStore("127.0.0.1", ranks, SECRET.encode()))
        monkeypatch.setenv(outside_step.RENDEZVOUS, json.dumps({"address": stores[-1].address, "secret": SECRET}))
        settings = Settings(Channel("shm" if library == "ucx" else "tcp"), library, fusion_bytes, servers)
        found = [kind(settings) for _ in range(ranks)]
        every.extend(found)
        return found, tuple(f"127.0.0.1:{1000 + rank}" for rank in range(ranks))

    yield make
    for exchange in every:
        exchange.close()
    for store in stores:
        store.close()


def means(ranks: int) -> list[bytes]:
    """Return the means of one process for the same gradients, in the order of the ranks."""
    found = []
    for tensors in zip(*(gradients(rank) for rank in range(ranks)), strict=True):
        first, *others = (np.asarray(tensor) for tensor in tensors)
        total = first.copy()
        for other in others:
            total += other
        found.append((total / np.float32(ranks)).tobytes())
    return found


def reduced_and_left(exchanges: list[ParameterServer], peers: tuple[str, ...], calls: int) -> list[list[bytes]]:
    """Return each rank's last result; each rank leaves as soon as it has it."""
    import tensorflow as tf

    def work(rank: int) -> list[bytes]:
        exchanges[rank].join(tf, peers, rank)
        for _ in range(calls):
            found = exchanges[rank].reduce(tf, gradients(rank), len(peers))
        exchanges[rank].close()
        return [np.asarray(tensor).tobytes() for tensor in found]

    found: list[list[bytes]] = on_ranks(len(peers), work)
    return found


@pytest.mark.parametrize(("servers", "ranks"), [(1, 2), (2, 2), (1, 3), (3, 3), (3, 4)])
def test_the_mean_is_that_of_one_process_to_the_bit(made: Make, servers: int, ranks: int) -> None:
    """Sums are in the order of the ranks for all shards, and a rank that leaves early keeps its server for the
    others."""
    exchanges, peers = made(ranks, servers)
    assert reduced_and_left(exchanges, peers, calls=3) == [means(ranks)] * ranks


@pytest.mark.parametrize("library", ["grpc", "ucx"])
def test_libraries_do_not_change_a_bit(made: Make, library: str) -> None:
    exchanges, peers = made(3, 2, library, 256)
    assert reduced_and_left(exchanges, peers, calls=3) == [means(3)] * 3


def test_more_servers_than_ranks_are_refused(made: Make) -> None:
    exchanges, peers = made(2, 3)
    with pytest.raises(ExchangeFailed, match="exchange_servers 3"):
        exchanges[0].join(None, peers, 0)


def failures(
    exchanges: list[ParameterServer], peers: tuple[str, ...], dies: Callable[[int], bool], calls: int = 3
) -> list[str]:
    """Return each rank's error after its first call; `dies` decides which rank ends."""
    import tensorflow as tf

    called = threading.Barrier(len(peers), timeout=30)

    def work(rank: int) -> str:
        exchanges[rank].join(tf, peers, rank)
        exchanges[rank].reduce(tf, gradients(rank), len(peers))
        called.wait()
        if dies(rank):
            return "dead"
        try:
            for _ in range(calls):
                exchanges[rank].reduce(tf, gradients(rank), len(peers))
        except ExchangeFailed as error:
            return str(error)
        return "not noticed"

    found: list[str] = on_ranks(len(peers), work)
    return found


@pytest.mark.parametrize("server", [0, 1])
def test_a_server_that_dies_is_named_by_all_workers(made: Make, server: int) -> None:
    exchanges, peers = made(4, 2)

    def dies(rank: int) -> bool:
        if rank == 3:
            process = cast("PsPeers", exchanges[server].peers)._process
            os.kill(process._process.pid, signal.SIGKILL)
        return False

    said = failures(exchanges, peers, dies)
    assert all(f"ps-{server} is gone" in line for line in said), said


@pytest.mark.parametrize("dead", [0, 2])
def test_a_worker_that_dies_is_named_by_all_others(made: Make, dead: int) -> None:
    exchanges, peers = made(4, 2)

    said = failures(exchanges, peers, death_of(dead, exchanges))
    assert all(f"rank {dead} " in line for rank, line in enumerate(said) if rank != dead), said


def death_of(dead: int, exchanges: Any) -> Callable[[int], bool]:
    """Return a function that ends the exchange of rank `dead`, and is True for this rank."""

    def dies(rank: int) -> bool:
        if rank == dead:
            die(exchanges[rank])
        return rank == dead

    return dies


def die(exchange: Any) -> None:
    """End like a process: close connections and the server's stdin."""
    exchange.peers.fail()
    exchange._store._channel.close()
    if exchange.peers._process is not None:
        exchange.peers._process._process.stdin.close()


def test_a_worker_that_never_pushes_is_named(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    for module in ("outside_step", "ps.exchange"):
        monkeypatch.setattr(f"dlobd.network.exchanges.{module}.DEADLINE_S", 6.0)  # a second at the servers
    exchanges, peers = made(3, 2)
    joined = threading.Barrier(3, timeout=30)

    def work(rank: int) -> str:
        exchanges[rank].join(tf, peers, rank)
        joined.wait()
        if rank == 1:
            return "rank 1"
        try:
            exchanges[rank].reduce(tf, gradients(rank), 3)
        except ExchangeFailed as error:
            return str(error)
        return "not noticed"

    said = on_ranks(3, work)
    assert all("rank 1" in line for line in said), said


def run_ranks(spans: Path, exchange: str, count: int) -> list[str]:
    """Return the output of rank processes after three calls."""
    peers = ",".join(f"127.0.0.1:{1 + rank}" for rank in range(count))
    with closing(KeyValueStore("127.0.0.1", count, SECRET.encode())) as store:
        place = {outside_step.RENDEZVOUS: json.dumps({"address": store.address, "secret": SECRET})}
        ranks = [
            subprocess.Popen(
                [sys.executable, str(RANK), str(spans), str(rank), peers, exchange, "tcp", "sockets", "3"],
                env={**os.environ, **place},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        said = [rank.communicate(timeout=110)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * count
    return said


def test_workers_and_servers_record_their_parts(tmp_path: Path) -> None:
    said = run_ranks(tmp_path, "ps", 2)
    assert said[0] == said[1]
    processes = read_all(tmp_path)
    (server,) = [process for process in processes if process.process.role == "ps"]
    workers = [process for process in processes if process is not server]
    assert len(workers) == 2
    for process in workers:
        parts = [span.name for span in process.spans if span.layer == "channel"]
        one_call = [kinds.PACK, kinds.WAIT_FOR_PEERS, kinds.WIRE, kinds.UNPACK]
        assert parts == [*one_call * 3, kinds.LEAVE_SERVERS]
        assert [span.call for span in process.named(kinds.WAIT_FOR_PEERS)] == [0, 1, 2]
    assert {(span.layer, span.thread) for span in server.spans} == {("channel", "rank-0"), ("channel", "rank-1")}
    # both ends tell of the same transfers; the first of a call's two receptions is the barrier's, of nothing
    sent = [transfer for worker in workers for span in worker.named(kinds.WIRE) for transfer in span.attrs["transfers"]]
    served = [transfer for span in server.spans for transfer in span.attrs.get("transfers", ())]
    assert sorted(map(str, sent)) == sorted(map(str, served))
    assert {tuple(transfer[:2]) for transfer in sent} == {(0, "ps-0"), (1, "ps-0"), ("ps-0", 0), ("ps-0", 1)}
    for name, count in ((kinds.RECEIVE, 12), (kinds.SUM, 6), (kinds.SEND, 12)):
        assert len(server.named(name)) == count, name
    told = [TransportEvidence.from_attrs(i.attrs) for one in processes if (i := one.instant(kinds.TRANSPORT))]
    assert sorted(one.who for one in told) == ["ps-0", "rank 0", "rank 1"]
    plane = verdict("exchange", Channel.parse("tcp"), told)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence


PARENT = """
import os, sys, time
from dlobd.network.exchanges.ps.process import ServerConfig, ServerProcess
config = ServerConfig(0, 2, "tcp", "127.0.0.1", "sockets", False, "s", 60.0, 60.0, "")
server = ServerProcess(config, time.monotonic() + 30)
print(server._process.pid, flush=True)
time.sleep(600)
"""


def test_a_server_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        server = os.pidfd_open(pid)
        try:
            assert not select.select([server], [], [], 0.5)[0]  # it does live
            parent.kill()
            assert select.select([server], [], [], 30.0)[0]
        finally:
            os.close(server)


def test_a_single_rank_needs_neither_store_nor_server(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.delenv(outside_step.RENDEZVOUS, raising=False)
    with closing(EXCHANGES.get("ps")(Settings(Channel("tcp"), "sockets", 1 << 20, 1))) as alone:
        alone.join(tf, ("127.0.0.1:1",), 0)
        found = alone.reduce(tf, gradients(0), 1)
    for given, mean in zip(gradients(0), found, strict=True):
        np.testing.assert_array_equal(np.asarray(given), np.asarray(mean))


@pytest.mark.parametrize(("servers", "library", "fusion_bytes"), [(1, "sockets", 1 << 20), (3, "ucx", 64)])
def test_asynchronous_servers_give_each_rank_all_pushes_once(
    made: Make, servers: int, library: str, fusion_bytes: int
) -> None:
    import tensorflow as tf

    exchanges, peers = made(3, servers, library, fusion_bytes, AsynchronousParameterServer)
    calls = [2, 5, 9]
    last = threading.Barrier(3, timeout=30)

    def work(rank: int) -> list[Any]:
        exchanges[rank].join(tf, peers, rank)
        total = [np.zeros(np.shape(tensor)) for tensor in gradients(rank)]
        for call in range(calls[rank] + 1):
            if call == calls[rank]:
                last.wait()  # all others have pushed all but their last
            for k, part in enumerate(exchanges[rank].reduce(tf, gradients(rank), 3)):
                total[k] += np.asarray(part)
            if call == calls[rank]:
                last.wait()
        rest = [np.zeros(np.shape(tensor), np.float32) for tensor in gradients(rank)]
        for k, part in enumerate(exchanges[rank].reduce(tf, rest, 3)):  # what came after its own last push
            total[k] += np.asarray(part)
        exchanges[rank].close()
        return total

    found = on_ranks(3, work)
    for k in range(len(gradients(0))):
        pushed = sum((calls[rank] + 1) * np.asarray(gradients(rank)[k], np.float64) for rank in range(3))
        for rank in range(3):
            np.testing.assert_allclose(found[rank][k], pushed, rtol=1e-4, atol=1e-5)


def test_an_asynchronous_rank_waits_for_its_servers_and_for_no_rank(tmp_path: Path) -> None:
    run_ranks(tmp_path, "ps-async", 2)
    processes = read_all(tmp_path)
    (server,) = [process for process in processes if process.process.role == "ps"]
    for process in processes:
        if process is server:
            continue
        rank = process.process.index + (process.process.role == "worker")
        parts = [span.name for span in process.spans if span.layer == "channel"]
        assert parts == [*[kinds.PACK, kinds.WIRE, kinds.PUSH, kinds.PULL, kinds.UNPACK] * 3, kinds.LEAVE_SERVERS]
        waits = {lane for name in (kinds.PUSH, kinds.PULL) for span in process.named(name) for lane in waits_of(span)}
        assert waits == {f"ps-0/rank-{rank}"} == {kinds.server_lane(0, rank)}
        assert [span.name for span in process.spans if span.rendezvous] == [kinds.LEAVE_SERVERS]
    assert {span.thread for span in server.spans} == {"rank-0", "rank-1"}
    assert [len(server.named(name)) for name in (kinds.RECEIVE, kinds.SUM, kinds.SEND)] == [6, 6, 6]


def waits_of(span: Any) -> Any:
    """Return the lanes that a recorded span waits for."""
    return span.wait["waits_for"]


@pytest.mark.parametrize("dead", [0, 1])
def test_a_worker_that_dies_ends_an_asynchronous_exchange_too(made: Make, dead: int) -> None:
    """The others would train something else."""
    exchanges, peers = made(3, 2, kind=AsynchronousParameterServer)

    said = failures(exchanges, peers, death_of(dead, exchanges), calls=200)
    assert all(f"rank {dead} " in line for rank, line in enumerate(said) if rank != dead), said
