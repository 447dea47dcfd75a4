"""TensorFlow's parameter servers: ranks are processes, with real servers of TensorFlow on loopback and a real store."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd import spans as kinds
from dlobd.channel import Channel
from dlobd.job.launchers.native import free_addresses
from dlobd.network.exchanges import outside_step
from dlobd.network.rendezvous.store import KeyValueStore
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from tests import forks
from tests.exchange_rank import gradients
from tests.recorded import read_all

pytestmark = pytest.mark.timeout(180)

SECRET = "of this test"

RANK = """
import json, os, signal, sys
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
        os.kill(os.getpid(), signal.SIGKILL)
    outside_step.DEADLINE_S = 3.0
    try:
        exchange.reduce(tf, gradients(rank), len(peers))
    except ExchangeFailed as error:
        print(error, flush=True)
    sys.exit()
exchange.close()
tracing.flush()
"""


@contextmanager
def places(spans: Path, ranks: int, servers: int, *more: str) -> Iterator[tuple[list[list[str]], dict[str, str]]]:
    """Yield the arguments of each rank, and the environment of all with the addresses of a launcher."""
    with closing(KeyValueStore("127.0.0.1", ranks, SECRET.encode())) as store:
        place = {outside_step.RENDEZVOUS: json.dumps({"address": store.address, "secret": SECRET})}
        peers = ",".join(free_addresses(ranks))
        yield [["-c", RANK, str(spans), str(rank), peers, str(servers), "3", *more] for rank in range(ranks)], place


def test_means_are_those_of_numpy_and_the_transport_is_proved(tmp_path: Path) -> None:
    ranks = 3
    with places(tmp_path, ranks, 2) as (commands, environment):
        done = forks.run(commands, 150, **environment)
    assert [one.returncode for one in done] == [0] * ranks, done
    found = [list(np.load(tmp_path / f"rank-{rank}.npz").values()) for rank in range(ranks)]
    for number, parts in enumerate(zip(*(gradients(rank) for rank in range(ranks)), strict=True)):
        np.testing.assert_allclose(found[0][number], 3 * np.mean(parts, axis=0), rtol=1e-5, atol=1e-6)
        for other in found[1:]:
            np.testing.assert_array_equal(other[number], found[0][number])
    recorded = sorted(read_all(tmp_path), key=_rank)
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
    with places(tmp_path, 3, 1, "dies") as (commands, environment):
        done = forks.run(commands, 150, **environment)
    assert done[1].returncode == -signal.SIGKILL
    for rank in (0, 2):
        assert done[rank].stdout.startswith("reduced\n")
        assert "rank 1 is gone" in done[rank].stdout, done[rank]


def _rank(recorded: Any) -> int:
    return 0 if recorded.process.role == "chief" else int(recorded.process.index) + 1
