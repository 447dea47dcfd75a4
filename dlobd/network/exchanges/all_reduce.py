"""dlobd's own exchanges: gradients are summed in numpy's memory, outside of the step, by a collective over a channel.

    pack             tensors are copied into fusion buffers (`dlobd.network.exchanges.fusion`)
    wait for peers   a barrier, so that the time until the last rank has packed is that rank's, and not the wire's
    wire             the collective, one buffer after the other (`dlobd.network.collectives`)
    unpack           the means are divided out of the buffers, and become tensors

All four are spans of layer channel. That of the wire has `transfers`: source, destination, bytes and buffer of each,
at both of its ends. Ranks meet through the driver's address book, whose place and secret are in the
environment, as the driver's clock is; they listen on the channel's device, without one on the address that their
launcher gave them, and nowhere else.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel
from dlobd.network.channels.spec import ChannelSpec
from dlobd.network.collectives import barrier as barriers
from dlobd.network.collectives import base as collectives
from dlobd.network.collectives.halving_doubling import HalvingDoubling as HalvingDoublingAllReduce
from dlobd.network.collectives.mesh import ExchangeFailed, Mesh
from dlobd.network.collectives.ring import Ring as RingAllReduce
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.fusion import Fusion
from dlobd.network.formation.address_book import Entry
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record
from dlobd.schema import NotMeasured
from dlobd.tracing import names

PLACE = "_DLOBD_ADDRESS_BOOK"
"""The environment variable with the book's address and the run's secret, as JSON. Between dlobd's processes only."""

JOIN_S = 60.0
"""How long ranks wait for one that does not come, as with TensorFlow's own exchange. All were started together."""

DEADLINE_S = 60.0
"""How long one exchange may take: 64 MB over 1 Gbit/s take a second. A rank that evaluates or saves is not waited for
in an exchange: the others have ended by then."""


class _Exchange:
    """See `dlobd.network.exchanges.base.Exchange`."""

    inside_step: ClassVar[bool] = False
    not_measured: ClassVar[NotMeasured | None] = None
    collective: ClassVar[type[collectives.AllReduce]]

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._entry: Entry | None = None
        self._channel: Channel | None = None
        self._before: Snapshot | None = None
        self._mesh: Mesh | None = None
        self._all_reduce: Callable[[NDArray[Any], float], None] | None = None
        self._fusions: dict[tuple[Any, ...], Fusion] = {}
        self._calls = 0

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Nothing: TensorFlow knows of no other rank."""
        return {}

    def join(self, tf: Any, peers: Sequence[str], rank: int) -> None:
        """Connects to the partners of this rank. One rank alone needs nobody.

        Raises:
            ExchangeFailed, FormationError: some did not come.
        """
        if len(peers) < 2:
            return
        deadline_s = time.monotonic() + JOIN_S
        place = json.loads(os.environ[PLACE])
        secret = place["secret"].encode()
        self._entry = Entry(place["address"], rank, secret, deadline_s)
        self._before = Snapshot.read()
        self._channel = _channel(self._settings, peers[rank], secret)
        partners = self.collective.partners(rank, len(peers)) | barriers.partners(rank, len(peers))

        def all_gather(name: str, value: str) -> list[str]:
            assert self._entry is not None
            return self._entry.exchange(name, value, deadline_s)

        self._mesh = Mesh.join(rank, len(peers), partners, self._channel, all_gather, deadline_s)
        self._all_reduce = self.collective(self._mesh)

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
            if self._channel is not None:
                self._channel.close()  # so that those who wait for this rank learn of it now
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
        if self._mesh is not None and self._all_reduce is not None:
            with tracing.span("channel", names.WAIT_FOR_PEERS, {"rendezvous": names.PEERS_RENDEZVOUS, "call": call}):
                barriers.barrier(self._mesh, deadline_s)
            self._mesh.carried()
            with tracing.span("channel", names.WIRE, bytes=fusion.bytes, call=call) as span:
                transfers = []
                for number, bucket in enumerate(fusion.buckets):
                    self._all_reduce(bucket, deadline_s)
                    transfers += [(*transfer, number) for transfer in self._mesh.carried()]
                span.note(transfers=transfers)
        with tracing.span("channel", names.UNPACK):
            # the quotient is new memory, which TensorFlow may keep
            return [tf.constant(total / total.dtype.type(ranks)) for total in fusion.unpack()]

    def _fusion(self, arrays: Sequence[NDArray[Any]]) -> Fusion:
        form = tuple((array.shape, array.dtype) for array in arrays)
        if form not in self._fusions:
            self._fusions[form] = Fusion(arrays, self._settings.fusion_bytes)
        return self._fusions[form]

    def close(self) -> None:
        """Says what carried the bytes, leaves the other ranks, and says bye."""
        if self._mesh is not None and self._channel is not None and self._before is not None:
            told = self._channel.evidence()
            found = record(self._mesh.rank, self._settings.library, self._before, lanes=told.lanes, traffic=told)
            tracing.instant(names.TRANSPORT, **found)
            self._before = None
        if self._mesh is not None:
            self._mesh.close()
        if self._channel is not None:
            self._channel.close()
        if self._entry is not None:
            self._entry.close()


def _channel(settings: Settings, address: str, secret: bytes) -> Channel:
    """Over the device that was asked for; else over that which has the address that the launcher gave this rank."""
    spec = ChannelSpec.parse(settings.channel)
    device = spec.device or socket.gethostbyname(address.rpartition(":")[0])
    channel: Channel = LIBRARIES.get(settings.library)(spec.transport, device, secret)
    return channel


class Ring(_Exchange):
    """By a ring all-reduce."""

    collective = RingAllReduce


class HalvingDoubling(_Exchange):
    """By recursive halving and doubling."""

    collective = HalvingDoublingAllReduce
