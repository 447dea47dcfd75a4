"""Training by every exchange over every library: the losses of one process that has all samples.

Ranks are processes with real TensorFlow; each trains by one exchange after the other. Sums of float32 are made in
another order than in one process, so that losses agree to LOSS_TOLERANCE; between libraries an exchange of dlobd's sums
in one order, so that they agree to the bit.
"""

from __future__ import annotations

from typing import Any

import pytest

from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.experiment import channels
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from tests.trainings import Way, trained

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LOSS_TOLERANCE = 1e-5
"""Relative, in each of eight steps."""

ONCE = ("tf-ring", "tf-ps", "mpi")
"""A process can use these only once, so each needs processes of its own: with three ranks only."""


def ways(ranks: int) -> list[Way]:
    """Every exchange by every library that carries it without a device: by tcp, except that ucx has no route on
    loopback, and so goes by shm."""
    found: list[Way] = []
    for exchange in EXCHANGES.names():
        if exchange in channels.ASYNCHRONOUS:
            continue
        servers = min(2, ranks) if exchange in channels.SERVED else 1
        found += [
            (exchange, channel, library, servers)
            for channel in ("tcp", "shm")
            for library in channels.libraries(exchange, channel)
            if (library == "ucx") == (channel == "shm")
        ]
    return found


@pytest.fixture(scope="module")
def alone() -> Any:
    """The losses of one process that has all samples."""
    ((found,),) = trained(1, [("ring", "tcp", "sockets", 1)])
    return found


# shared memory is proved by counters of this machine that do not move
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.serial), 4])
def test_every_exchange_trains_as_one_process_does(alone: Any, ranks: int) -> None:
    """Every rank has the same losses; a library does not change a bit; the transport is as asked."""
    every = [way for way in ways(ranks) if (way[0] not in ONCE and way[1] == "tcp") or ranks == 3]
    together = [way for way in every if way[0] not in ONCE]
    found = dict(zip(together, trained(ranks, together), strict=True))
    for way in every:
        if way[0] in ONCE:
            (found[way],) = trained(ranks, [way])
    bits: dict[str, set[tuple[float, ...]]] = {}
    for way, said in found.items():
        exchange, channel, *_ = way
        losses = {tuple(one["losses"]) for one in said}
        assert len(losses) == 1, f"{way}: ranks differ"
        assert next(iter(losses)) == pytest.approx(alone["losses"], rel=LOSS_TOLERANCE), way
        bits.setdefault(exchange, set()).update(losses)
        told = [TransportEvidence.from_attrs(one["transport"]) for one in said if one["transport"]]
        plane = verdict("exchange", Channel.parse(channel), told)
        assert plane.agrees, (way, plane.evidence)
    assert alone["losses"][-1] < alone["losses"][0]
    assert {exchange: len(each) for exchange, each in bits.items()} == dict.fromkeys(bits, 1)


def test_asynchronous_ranks_lower_the_loss() -> None:
    """Each at its own pace, and with its own losses: there is no single process to compare them with."""
    (said,) = trained(2, [("ps-async", "tcp", "sockets", 2)])
    # the one that starts later finds weights that the other has trained
    untrained = max(one["losses"][0] for one in said)
    for one in said:
        assert one["losses"][-1] < untrained
