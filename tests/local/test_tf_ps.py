"""TensorFlow's parameter servers: ranks are processes, with real servers of TensorFlow on loopback and a real store."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd import spans as kinds
from dlobd.channel import Channel
from dlobd.evidence import recorder
from dlobd.network.exchanges import outside_step
from dlobd.network.rendezvous.store import KeyValueStore
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from tests.exchange_rank import gradients

pytestmark = pytest.mark.timeout(180)

SECRET = "of this test"
TESTS = Path(__file__).parents[1]

RANK = """
import json, sys
import numpy as np
import tensorflow as tf
from tests.exchange_rank import gradients
from dlobd import tracing
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges import outside_step
from dlobd.channel import Channel
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.tf_ps import TfPs

spans, rank, peers, servers, calls = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), *map(int, sys.argv[4:6])
tracing.start(spans, "worker" if rank else "chief", max(0, rank - 1))
exchange = TfPs(Settings(Channel("tcp"), "tensorflow", 1 << 16, servers))
exchange.join(tf, peers, rank)
for call in range(calls):
    means = exchange.reduce(tf, [(call + 1) * each for each in gradients(rank)], len(peers))
np.savez(f"{spans}/rank-{rank}.npz", *map(np.asarray, means))
print("reduced", flush=True)
if "dies" in sys.argv:
    if rank == 1:
        sys.stdin.read()
    outside_step.DEADLINE_S = 3.0
    try:
        exchange.reduce(tf, gradients(rank), len(peers))
    except ExchangeFailed as error:
        print(error, flush=True)
    sys.exit()
exchange.close()
tracing.flush()
"""


def started(spans: Path, ranks: int, servers: int, *more: str) -> tuple[ExitStack, list[subprocess.Popen[str]]]:
    """Start ranks with the addresses of a launcher; return what ends them."""
    with ExitStack() as free:
        taken = [free.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(ranks)]
        peers = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in taken)
    ends = ExitStack()
    store = ends.enter_context(closing(KeyValueStore("127.0.0.1", ranks, SECRET.encode())))
    place = {outside_step.RENDEZVOUS: json.dumps({"address": store.address, "secret": SECRET})}
    path = {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    processes = []
    for rank in range(ranks):
        command = [sys.executable, "-c", RANK, str(spans), str(rank), peers, str(servers), "3", *more]
        process = subprocess.Popen(
            command, env={**os.environ, **place, **path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ends.enter_context(process)  # whose end is awaited, after it was killed
        ends.callback(process.kill)
        processes.append(process)
    return ends, processes


def test_means_are_those_of_numpy_and_the_transport_is_proved(tmp_path: Path) -> None:
    """All parts are recorded; the kernel counts the bytes to the serving ranks."""
    ranks = 3
    ends, processes = started(tmp_path, ranks, 2)
    with ends:
        for process in processes:
            assert process.wait(120) == 0
    found = [list(np.load(tmp_path / f"rank-{rank}.npz").values()) for rank in range(ranks)]
    for number, parts in enumerate(zip(*(gradients(rank) for rank in range(ranks)), strict=True)):
        np.testing.assert_allclose(found[0][number], 3 * np.mean(parts, axis=0), rtol=1e-5, atol=1e-6)
        for other in found[1:]:
            np.testing.assert_array_equal(other[number], found[0][number])
    recorded = sorted(recorder.read_all(tmp_path), key=_rank)
    for process in recorded:
        for name in (kinds.PACK, kinds.WAIT_FOR_PEERS, kinds.WIRE, kinds.UNPACK):
            assert len(process.named(name)) == 3, name
    links = [transfers(process) for process in recorded]
    assert sorted(links[0]) != []
    for rank, mine in enumerate(links):
        assert all(rank in (source, to) and source != to for source, to, *_ in mine)
        both = {link for other, some in enumerate(links) if other != rank for link in some}
        assert set(mine) <= both, "each transfer is told at both of its ends"
    told = [TransportEvidence.from_attrs(i.attrs) for one in recorded if (i := one.instant(kinds.TRANSPORT))]
    plane = verdict("exchange", Channel.parse("tcp"), told)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence


def transfers(process: Any) -> list[tuple[int, ...]]:
    """Return (source, destination, bytes, buffer) of the last call."""
    return [tuple(transfer) for transfer in process.named(kinds.WIRE)[-1].attrs["transfers"]]


def test_a_rank_that_is_killed_is_named_by_the_deadline(tmp_path: Path) -> None:
    """By the store: TensorFlow only knows that some rank is missing."""
    ends, processes = started(tmp_path, 3, 1, "dies")
    with ends:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "reduced\n"
        processes[1].kill()
        for rank in (0, 2):
            assert "rank 1 is gone" in processes[rank].communicate(timeout=60)[0]


def _rank(recorded: Any) -> int:
    return 0 if recorded.process.role == "chief" else int(recorded.process.index) + 1
