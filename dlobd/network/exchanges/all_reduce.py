"""Exchanges beside the step: gradients are summed in numpy's memory, by an all-reduce over whatever joins the ranks.

    pack             tensors are copied into fusion buffers (`dlobd.network.exchanges.fusion`)
    wait for peers   a barrier, so that the time until the last rank has packed is that rank's, and not the wire's
    wire             the collective, one buffer after the other
    unpack           the means are divided out of the buffers, and become tensors

All four are spans of layer channel. That of the wire has `transfers`: source, destination, bytes and buffer of each,
at both of its ends. Ranks meet through the driver's address book, whose place and secret are in the environment, as
the driver's clock is.
"""

from __future__ import annotations

import json
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import Traffic
from dlobd.network.channels.spec import ChannelSpec
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.fusion import Fusion
from dlobd.network.formation.address_book import Entry
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record
from dlobd.schema import NotMeasured

PLACE = "_DLOBD_ADDRESS_BOOK"
"""The environment variable with the addresses of the book and of the PMI server and the run's secret, as JSON. Between
dlobd's processes only."""

JOIN_S = 60.0
"""How long ranks wait for one that does not come, as with TensorFlow's own exchange. All were started together."""

DEADLINE_S = 60.0
"""How long one exchange may take: 64 MB over 1 Gbit/s take a second. A rank that evaluates or saves is not waited for
in an exchange: the others have ended by then."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a rank knows when it is to join the others.

    peers: what launchers tell of each rank: the address host:port at which TensorFlow may listen.
    channel: its device is never empty for tcp: else it is the address that the launcher gave this rank.
    book: of the driver, which this rank has proved the run's secret to.
    pmi: host:port of the driver's PMI server; empty where there is none.
    deadline_s: of joining, a time of time.monotonic().
    """

    rank: int
    peers: tuple[str, ...]
    channel: ChannelSpec
    settings: Settings
    book: Entry
    pmi: str
    secret: bytes
    deadline_s: float

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.peers)

    def all_gather(self, name: str, value: str) -> list[str]:
        """What all ranks gave under a name, in their order. Raises FormationError."""
        return self.book.exchange(name, value, self.deadline_s)


Transfer = tuple[int | str, int | str, int]
"""Source, destination and bytes. An end is the number of a rank, or the name of a parameter server such as ps-0."""


class Peers(Protocol):
    """What joins the ranks. `barrier` and `all_reduce` raise ExchangeFailed."""

    def barrier(self, call: int, deadline_s: float) -> None:
        """Returns once all ranks have called it, before the exchange number `call`."""

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """Sums in place; see `dlobd.network.collectives.base`."""

    def carried(self) -> Sequence[Transfer]:
        """What this rank sent and received since it was last asked, if it is known."""

    def evidence(self) -> Traffic | None:
        """What was carried in all; None where the library does not count."""

    def addresses(self) -> tuple[str, ...]:
        """By which the other ranks reach this one, if they do so by IP."""

    def fail(self) -> None:
        """Wakes those that wait for this rank, which goes on no more."""

    def close(self) -> None:
        """Leaves the other ranks."""


class AllReduceExchange(ABC):
    """See `dlobd.network.exchanges.base.Exchange`. What joins the ranks is a subclass's.

    Attributes:
        peers: what joins the ranks; None before they have joined, and for one rank alone.
    """

    inside_step: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True
    not_measured: ClassVar[NotMeasured | None] = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rank = 0
        self._entry: Entry | None = None
        self.peers: Peers | None = None
        self._before: Snapshot | None = None
        self._fusions: dict[tuple[Any, ...], Fusion] = {}
        self._calls = 0

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Nothing: TensorFlow knows of no other rank."""
        return {}

    def join(self, tf: Any, peers: Sequence[str], rank: int) -> None:
        """Connects to the other ranks. One rank alone needs nobody.

        Raises:
            ExchangeFailed, FormationError: some did not come.
            UsageError, SetupError: the channel's device cannot be used here.
        """
        if len(peers) < 2:
            return
        deadline_s = time.monotonic() + JOIN_S
        place = json.loads(os.environ[PLACE])
        secret = place["secret"].encode()
        self._rank = rank
        self._entry = Entry(place["address"], rank, secret, deadline_s)
        self._before = Snapshot.read()
        channel = _channel(self._settings, peers[rank])
        meeting = Meeting(
            rank, tuple(peers), channel, self._settings, self._entry, place.get("pmi", ""), secret, deadline_s
        )
        self.peers = self.meet(meeting)

    @abstractmethod
    def meet(self, meeting: Meeting) -> Peers:
        """Joins the ranks."""

    def scope(self) -> AbstractContextManager[Any]:
        """None: variables are this rank's own."""
        return nullcontext()

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """As it is."""
        return function(*arguments)

    def reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        """See the contract.

        Raises:
            ExchangeFailed: a rank is gone, which is named, or did not answer in time.
        """
        try:
            return self._reduce(tf, tensors, ranks)
        except ExchangeFailed as error:
            dead = self._entry.first_dead() if self._entry else None
            if self.peers is not None:
                self.peers.fail()
            if dead is None or f"rank {dead} " in str(error):
                raise
            raise ExchangeFailed(f"rank {dead} is gone; so {error}") from error

    def _reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        deadline_s = time.monotonic() + DEADLINE_S
        call, self._calls = self._calls, self._calls + 1
        with tracing.span(kinds.PACK) as span:
            arrays = [np.asarray(memoryview(tensor)) for tensor in tensors]  # no copy: a tensor shows its memory
            fusion = self._fusion(arrays)
            fusion.pack(arrays)
            span.note(bytes=fusion.bytes)
        if self.peers is not None:
            self.wait_for_peers(self.peers, call, deadline_s)
            self.peers.carried()
            with tracing.span(kinds.WIRE, bytes=fusion.bytes, call=call) as span:
                transfers = []
                for number, bucket in enumerate(fusion.buckets):
                    self.peers.all_reduce(bucket, deadline_s)
                    transfers += [(*transfer, number) for transfer in self.peers.carried()]
                span.note(transfers=transfers)
        with tracing.span(kinds.UNPACK):
            # the quotient is new memory, which TensorFlow may keep
            divisor = ranks if self.synchronous else 1
            return [tf.constant(total / total.dtype.type(divisor)) for total in fusion.unpack()]

    def wait_for_peers(self, peers: Peers, call: int, deadline_s: float) -> None:
        """A barrier of its own, so that what follows is the wire's time."""
        with tracing.span(kinds.WAIT_FOR_PEERS, {"call": call}):
            peers.barrier(call, deadline_s)

    def _fusion(self, arrays: Sequence[NDArray[Any]]) -> Fusion:
        form = tuple((array.shape, array.dtype) for array in arrays)
        if form not in self._fusions:
            self._fusions[form] = Fusion(arrays, self._settings.fusion_bytes)
        return self._fusions[form]

    def close(self) -> None:
        """Says what carried the bytes, leaves the other ranks, and says bye."""
        if self.peers is not None:
            if self._before is not None:
                told = self.peers.evidence()
                lanes, addresses = told.lanes if told else (), self.peers.addresses()
                found = record(
                    self._rank, self._settings.library, self._before, lanes=lanes, traffic=told, addresses=addresses
                )
                tracing.instant(kinds.TRANSPORT, **found)
                self._before = None
            self.peers.close()
        if self._entry is not None:
            self._entry.close()


def _channel(settings: Settings, address: str) -> ChannelSpec:
    """Over the device that was asked for; else, by TCP, that which has the address that the launcher gave this rank."""
    spec = ChannelSpec.parse(settings.channel)
    if spec.device or spec.transport != "tcp":
        return spec
    return ChannelSpec(spec.transport, socket.gethostbyname(address.rpartition(":")[0]))
