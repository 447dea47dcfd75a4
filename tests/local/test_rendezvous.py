"""The key-value store: ranks that are missing, die or leave, and clients that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.rendezvous.store import MESSAGE_BYTES, KeyValueStore, RendezvousError, StoreClient
from tests.ranks import PATIENCE_S, on_ranks, soon

SECRET = b"of this run"


@pytest.fixture
def store() -> Iterator[KeyValueStore]:
    with closing(KeyValueStore("127.0.0.1", 3, SECRET)) as made:
        yield made


def client(store: KeyValueStore, rank: int) -> StoreClient:
    return StoreClient(store.address, rank, SECRET, soon())


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_all_gather_returns_the_values_of_all_ranks(size: int) -> None:
    with closing(KeyValueStore("127.0.0.1", size, SECRET)) as store:

        def work(rank: int) -> list[list[str]]:
            time.sleep(rank * 7 % 3 / 100)
            with closing(client(store, rank)) as own:
                return [own.all_gather(name, f"{name}{rank}", soon()) for name in "ab"]

        expected = [[f"{name}{rank}" for rank in range(size)] for name in "ab"]
        assert on_ranks(size, work) == [expected] * size


def test_missing_ranks_are_named(store: KeyValueStore) -> None:
    with (
        closing(client(store, 1)) as own,
        pytest.raises(RendezvousError, match="rank 0 and rank 2 did not reach the rendezvous 'x'"),
    ):
        own.all_gather("x", "1", time.monotonic() + 0.1)


def test_a_rank_that_dies_is_named_at_once(store: KeyValueStore) -> None:
    """To waiting ranks, long before their deadline, and to ranks that ask; the first death counts."""
    code = (
        "import os, sys, time; from dlobd.network.rendezvous.store import StoreClient\n"
        "own = StoreClient(sys.argv[1], 2, b'of this run', time.monotonic() + 20); print('there', flush=True)\n"
        "sys.stdin.read(1); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code, store.address]
    with closing(client(store, 0)) as own, closing(client(store, 1)) as other:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"there\n"
            assert own.first_dead() is None
            killer = threading.Timer(0.1, child.stdin.close)
            killer.start()
            with pytest.raises(RendezvousError, match="rank 2 is gone"):
                own.all_gather("x", "0", soon())
            killer.join()
        assert own.first_dead() == 2
        assert other.first_dead() == 2


def test_a_rank_that_says_bye_is_not_dead(store: KeyValueStore) -> None:
    with closing(client(store, 0)) as own:
        client(store, 1).close()
        assert own.first_dead() is None


def test_a_wrong_secret_is_refused(store: KeyValueStore, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RendezvousError, match="the secret of this end is not the run's secret"):
        StoreClient(store.address, 0, b"another", soon())
    assert "does not have the run's secret" in capfd.readouterr().err
    client(store, 0).close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"{", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not a JSON object"),
        (b"{}", "rank None of 3"),
        (b'{"rank": 3}', "rank 3 of 3"),
        (b'{"rank": "0"}', "rank '0' of 3"),
        (b"x" * (MESSAGE_BYTES + 1), "does not fit"),
    ],
)
def test_an_invalid_message_is_refused(
    store: KeyValueStore, capfd: pytest.CaptureFixture[str], said: bytes, why: str
) -> None:
    with closing(SocketsChannel("tcp", "", SECRET)) as channel:
        channel.connect(store.address, soon()).send(said, soon())
        lines = ""
        until_s = time.monotonic() + PATIENCE_S
        while "\n" not in lines and time.monotonic() < until_s:
            lines += capfd.readouterr().err
            time.sleep(0.01)
    assert why in lines
    assert lines.count("\n") == 1
    client(store, 0).close()


@pytest.mark.parametrize("question", [{}, {"within_s": "1"}, {"within_s": -1}, {"name": 1, "value": "", "within_s": 1}])
def test_an_invalid_question_ends_the_connection(
    store: KeyValueStore, capfd: pytest.CaptureFixture[str], question: dict[str, object]
) -> None:
    with closing(SocketsChannel("tcp", "", SECRET)) as channel, closing(client(store, 1)) as own:
        connection = channel.connect(store.address, soon())
        connection.send(b'{"rank": 0}', soon())
        connection.send(json.dumps(question).encode(), soon())
        with pytest.raises(RendezvousError, match="rank 0 is gone"):
            own.all_gather("x", "1", soon())
    assert "refused" in capfd.readouterr().err


def test_a_rank_number_is_accepted_once(store: KeyValueStore, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(client(store, 0)) as first:
        second = client(store, 0)
        with pytest.raises(RendezvousError):
            second.all_gather("x", "", soon())
        second.close()
        assert "has connected before" in capfd.readouterr().err
        assert first.first_dead() is None


def test_closing_wakes_waiting_ranks() -> None:
    store = KeyValueStore("127.0.0.1", 2, SECRET)
    with closing(client(store, 0)) as own:
        closer = threading.Timer(0.1, store.close)
        closer.start()
        with pytest.raises(RendezvousError):
            own.all_gather("x", "0", soon())
        closer.join()
    store.close()


def test_two_hundred_stores_leave_no_thread_and_no_descriptor() -> None:
    def once() -> None:
        with closing(KeyValueStore("127.0.0.1", 2, SECRET)) as store:
            clients = [client(store, rank) for rank in range(2)]
            for each in clients:
                each.close()

    once()
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        once()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
