"""dlobd's own exchanges: ranks are threads, with real sockets on loopback, a real store, and TensorFlow's tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd import spans as kinds
from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges import outside_step
from dlobd.network.exchanges.base import Exchange, Settings
from dlobd.network.rendezvous.store import KeyValueStore, RendezvousError
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from tests.exchange_rank import gradients
from tests.ranks import on_ranks
from tests.recorded import read_all

RANK = Path(__file__).parents[1] / "exchange_rank.py"
SECRET = "of this test"
OWN = ("ring", "halving-doubling")
LIBRARIES = ("sockets", "grpc", "ucx")

Make = Callable[[int, str, str, int], "tuple[list[Exchange], tuple[str, ...]]"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make the exchanges of several ranks, and the addresses of their launcher."""
    stores: list[KeyValueStore] = []
    every: list[Exchange] = []

    def make(ranks: int, exchange: str, library: str = "sockets", fusion_bytes: int = 1 << 20) -> Any:
        stores.append(KeyValueStore("127.0.0.1", ranks, SECRET.encode()))
        monkeypatch.setenv(outside_step.RENDEZVOUS, json.dumps({"address": stores[-1].address, "secret": SECRET}))
        # UCX finds no route over loopback; between ranks of one host it has shared memory
        settings = Settings(Channel("shm" if library == "ucx" else "tcp"), library, fusion_bytes, 1)
        found = [EXCHANGES.get(exchange)(settings) for _ in range(ranks)]
        every.extend(found)
        return found, tuple(f"127.0.0.1:{1000 + rank}" for rank in range(ranks))

    yield make
    for exchange in every:
        exchange.close()
    for store in stores:
        store.close()


def reduced(exchanges: list[Exchange], peers: tuple[str, ...], calls: int = 1) -> list[list[Any]]:
    import tensorflow as tf

    def work(rank: int) -> list[Any]:
        exchanges[rank].join(tf, peers, rank)
        for _ in range(calls):
            found = exchanges[rank].reduce(tf, gradients(rank), len(peers))
        return found

    return on_ranks(len(peers), work)


@pytest.mark.parametrize("exchange", OWN)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_mean_is_that_of_one_process(made: Make, exchange: str, ranks: int) -> None:
    """To the last digits of float32, and with the same bits on every rank."""
    exchanges, peers = made(ranks, exchange, "sockets", 1 << 20)
    found = reduced(exchanges, peers, calls=2)
    for number, expected in enumerate(zip(*(gradients(rank) for rank in range(ranks)), strict=True)):
        mean = np.mean([np.asarray(tensor, np.float64) for tensor in expected], axis=0)
        np.testing.assert_allclose(np.asarray(found[0][number]), mean, rtol=1e-5, atol=1e-6)
        for other in found[1:]:
            assert np.asarray(other[number]).tobytes() == np.asarray(found[0][number]).tobytes()


@pytest.mark.parametrize("exchange", OWN)
def test_libraries_do_not_change_a_bit(made: Make, exchange: str) -> None:
    bits = set()
    for library in LIBRARIES:
        exchanges, peers = made(3, exchange, library, 1 << 20)
        bits.add(b"".join(np.asarray(tensor).tobytes() for tensor in reduced(exchanges, peers)[0]))
        for one in exchanges:
            one.close()
    assert len(bits) == 1


def test_small_buffers_give_the_same_ring_but_more_messages(made: Make) -> None:
    exchanges, peers = made(2, "ring", "sockets", 256)
    small = reduced(exchanges, peers)[0]
    for one in exchanges:
        one.close()
    exchanges, peers = made(2, "ring", "sockets", 1 << 20)
    large = reduced(exchanges, peers)[0]
    for a, b in zip(small, large, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


def test_parts_are_recorded_and_the_transport_is_proved(tmp_path: Path) -> None:
    """In processes, as in a job: pack, wait, wire and unpack of each call, and the evidence of the transport."""
    peers = ("127.0.0.1:1", "127.0.0.1:2")
    with closing(KeyValueStore("127.0.0.1", 2, SECRET.encode())) as store:
        place = {outside_step.RENDEZVOUS: json.dumps({"address": store.address, "secret": SECRET})}
        ranks = [
            subprocess.Popen(
                [sys.executable, str(RANK), str(tmp_path), str(rank), ",".join(peers), "ring", "tcp", "sockets", "3"],
                env={**os.environ, **place},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        said = [rank.communicate(timeout=110)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert said[0] == said[1]
    processes = read_all(tmp_path)
    assert len(processes) == 2
    for process in processes:
        for name in (kinds.PACK, kinds.WAIT_FOR_PEERS, kinds.WIRE, kinds.UNPACK):
            assert [span.layer for span in process.named(name)] == ["channel"] * 3, name
        assert [span.call for span in process.named(kinds.WAIT_FOR_PEERS)] == [0, 1, 2]
        # a ring of two: each half goes to the other rank and comes back as a sum
        sizes = [span.attrs["bytes"] for span in process.named(kinds.WIRE)]
        for call, span in enumerate(process.named(kinds.WIRE)):
            assert span.attrs["call"] == call
            assert [(source, to, bucket) for source, to, _, bucket in span.attrs["transfers"]] == [(0, 1, 0), (1, 0, 0)]
            assert sum(size for _, _, size, _ in span.attrs["transfers"]) == 2 * sizes[call]
    told = [TransportEvidence.from_attrs(i.attrs) for one in processes if (i := one.instant(kinds.TRANSPORT))]
    plane = verdict("exchange", Channel.parse("tcp"), told)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence


def test_a_missing_rank_is_named(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr(outside_step, "JOIN_S", 0.5)
    exchanges, peers = made(3, "ring", "sockets", 1 << 20)

    def work(rank: int) -> str:
        try:
            exchanges[rank].join(tf, peers, rank)
        except (RendezvousError, ExchangeFailed) as error:
            return str(error)
        return ""

    said = on_ranks(2, work)
    assert all("rank 2" in line for line in said), said


@pytest.mark.parametrize("exchange", OWN)
def test_a_rank_that_dies_is_named_by_all_others(made: Make, exchange: str) -> None:
    import tensorflow as tf

    exchanges, peers = made(4, exchange, "sockets", 1 << 20)
    joined = threading.Barrier(4, timeout=30)

    def work(rank: int) -> str:
        exchanges[rank].join(tf, peers, rank)
        joined.wait()
        if rank == 2:
            die(exchanges[rank])
            return ""
        try:
            for _ in range(3):
                exchanges[rank].reduce(tf, gradients(rank), 4)
        except ExchangeFailed as error:
            return str(error)
        return "not noticed"

    said = on_ranks(4, work)
    assert all("rank 2" in line for number, line in enumerate(said) if number != 2), said


def die(exchange: Any) -> None:
    exchange.peers.fail()
    exchange._store._channel.close()


def test_a_single_rank_needs_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.delenv(outside_step.RENDEZVOUS, raising=False)
    with closing(EXCHANGES.get("ring")(Settings(Channel("tcp"), "sockets", 1 << 20, 1))) as alone:
        alone.join(tf, ("127.0.0.1:1",), 0)
        found = alone.reduce(tf, gradients(0), 1)
    for given, mean in zip(gradients(0), found, strict=True):
        np.testing.assert_array_equal(np.asarray(given), np.asarray(mean))
