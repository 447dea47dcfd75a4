"""dlobd's own exchanges: gradients are summed in numpy's memory, outside of the step, by a collective over a channel.

    pack             tensors are copied into fusion buffers (`dlobd.network.exchanges.fusion`)
    wait for peers   a barrier, so that the time until the last rank has packed is that rank's, and not the wire's
    wire             the collective, one buffer after the other (`dlobd.network.collectives`, or MPI's)
    unpack           the means are divided out of the buffers, and become tensors

All four are spans of layer channel. Ranks meet through the driver's address book, whose place and secret are in the
environment, as the driver's clock is; they listen on the address that their launcher gave them, and nowhere else.
"""

from __future__ import annotations

import json
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dlobd import tracing
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.collectives import barrier as barriers
from dlobd.network.collectives import base as collectives
from dlobd.network.collectives.halving_doubling import HalvingDoubling as HalvingDoublingAllReduce
from dlobd.network.collectives.mesh import ExchangeFailed, Mesh
from dlobd.network.collectives.ring import Ring as RingAllReduce
from dlobd.network.exchanges.fusion import Fusion
from dlobd.network.formation.address_book import Entry, FormationError
from dlobd.schema import NotMeasured
from dlobd.tracing import names

PLACE = "DLOBD_ADDRESS_BOOK"
"""The environment variable with the book's address and the run's secret, as JSON. Between dlobd's processes only."""

JOIN_S = 60.0
"""How long ranks wait for one that does not come, as with TensorFlow's own exchange. All were started together."""

DEADLINE_S = 60.0
"""How long one exchange may take: 64 MB over 1 Gbit/s take a second. A rank that evaluates or saves is not waited for
in an exchange: the others have ended by then."""


class Peers(Protocol):
    """What joins the ranks. Each method raises ExchangeFailed."""

    def barrier(self, deadline_s: float) -> None:
        """Returns once all ranks have called it."""

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """Sums in place; see `dlobd.network.collectives.base`."""

    def close(self) -> None:
        """Leaves the other ranks."""


class AllReduceExchange(ABC):
    """See `dlobd.network.exchanges.base.Exchange`. What joins the ranks is a subclass's."""

    inside_step: ClassVar[bool] = False
    not_measured: ClassVar[NotMeasured | None] = None

    def __init__(self) -> None:
        self._entry: Entry | None = None
        self._peers: Peers | None = None
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
        """
        if len(peers) < 2:
            return
        deadline_s = time.monotonic() + JOIN_S
        place = json.loads(os.environ[PLACE])
        self._entry = Entry(place["address"], rank, place["secret"].encode(), deadline_s)
        host = socket.gethostbyname(peers[rank].rpartition(":")[0])
        self._peers = self.meet(rank, len(peers), host, place, self._entry, deadline_s)

    @abstractmethod
    def meet(self, rank: int, size: int, host: str, place: Mapping[str, str], entry: Entry, deadline_s: float) -> Peers:
        """Joins the ranks.

        Args:
            host: the IPv4 address on which this rank is to listen.
            place: what the driver has put under PLACE.
        """

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
            if dead is None or f"rank {dead} " in str(error):
                raise
            raise ExchangeFailed(f"rank {dead} is gone; so {error}") from error

    def _reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        deadline_s = time.monotonic() + DEADLINE_S
        call, self._calls = self._calls, self._calls + 1
        with tracing.span("channel", names.PACK) as span:
            arrays = [np.asarray(memoryview(tensor)) for tensor in tensors]  # no copy: a tensor shows its memory
            fusion = self._fusion(arrays)
            fusion.pack(arrays)
            span.note(bytes=fusion.bytes)
        if self._peers is not None:
            with tracing.span("channel", names.WAIT_FOR_PEERS, {"rendezvous": names.PEERS_RENDEZVOUS, "call": call}):
                self._peers.barrier(deadline_s)
            with tracing.span("channel", names.WIRE, bytes=fusion.bytes):
                for bucket in fusion.buckets:
                    self._peers.all_reduce(bucket, deadline_s)
        with tracing.span("channel", names.UNPACK):
            # the quotient is new memory, which TensorFlow may keep
            return [tf.constant(total / total.dtype.type(ranks)) for total in fusion.unpack()]

    def _fusion(self, arrays: Sequence[NDArray[Any]]) -> Fusion:
        form = tuple((array.shape, array.dtype) for array in arrays)
        if form not in self._fusions:
            self._fusions[form] = Fusion(arrays)
        return self._fusions[form]

    def close(self) -> None:
        """Leaves the other ranks, and says bye."""
        if self._peers is not None:
            self._peers.close()
        if self._entry is not None:
            self._entry.close()


class _OverMesh(AllReduceExchange):
    """By a collective of dlobd's own, over sockets."""

    collective: ClassVar[type[collectives.AllReduce]]

    def meet(self, rank: int, size: int, host: str, place: Mapping[str, str], entry: Entry, deadline_s: float) -> Peers:
        """Connects to the partners of this rank."""
        channel = SocketsChannel("tcp", host, place["secret"].encode())
        partners = self.collective.partners(rank, size) | barriers.partners(rank, size)

        def all_gather(name: str, value: str) -> list[str]:
            return entry.exchange(name, value, deadline_s)

        try:
            mesh = Mesh.join(rank, size, partners, channel, all_gather, deadline_s)
        except (ExchangeFailed, FormationError):
            channel.close()
            raise
        return _MeshPeers(channel, mesh, self.collective)


class _MeshPeers:
    """See `Peers`."""

    def __init__(self, channel: SocketsChannel, mesh: Mesh, collective: type[collectives.AllReduce]) -> None:
        self._channel = channel
        self._mesh = mesh
        self._collective = collective(mesh)

    def barrier(self, deadline_s: float) -> None:
        """See the contract."""
        barriers.barrier(self._mesh, deadline_s)

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        self._collective(array, deadline_s)

    def close(self) -> None:
        """See the contract."""
        self._mesh.close()
        self._channel.close()


class Ring(_OverMesh):
    """By a ring all-reduce."""

    collective = RingAllReduce


class HalvingDoubling(_OverMesh):
    """By recursive halving and doubling."""

    collective = HalvingDoublingAllReduce
