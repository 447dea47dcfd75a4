"""Base class of exchanges outside of the compiled step: gradients are summed in numpy's memory, by any connection.

    pack             tensors are copied into fusion buffers (`dlobd.network.exchanges.fusion`)
    wait for peers   a barrier, so that the time until the last rank has packed is not attributed to the wire
    wire             the collective, buffer by buffer
    unpack           the sums in the buffers are divided by the number of ranks, and become tensors

All four are spans of layer channel. The span `wire` has `transfers`: source, destination, bytes and buffer of each
transfer, recorded at both ends. Ranks find each other through the key-value store of the driver; its address and the
run's secret are in the environment.
"""

import json
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.channel import Channel
from dlobd.network.channels.base import Array, OpenChannel
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.base import Settings, Tensor, TensorFlow
from dlobd.network.exchanges.fusion import Fusion
from dlobd.network.rendezvous.store import StoreClient
from dlobd.network.verdict.evidence import Snapshot, record
from dlobd.schema import NotMeasured

RENDEZVOUS = "_DLOBD_RENDEZVOUS"
"""Environment variable with the addresses of the store and of the PMI server and the run's secret, as JSON. It is
private to dlobd's processes."""

JOIN_S = 60.0
"""Timeout for a missing rank, as in TensorFlow's own exchange. All ranks were started together."""

DEADLINE_S = 60.0
"""Timeout of one exchange: 64 MB over 1 Gbit/s take a second. No exchange waits while a rank evaluates or saves,
because its peers have ended by then."""


@dataclass(frozen=True, slots=True)
class JoinContext:
    """Addresses, settings and clients with which a rank joins the other ranks."""

    rank: int
    peers: tuple[str, ...]  # addresses host:port at which TensorFlow may listen, by rank; from the launcher
    channel: Channel  # the device is never empty for tcp: the default is the address that the launcher gave this rank
    library: str
    servers: int
    store: StoreClient  # an authenticated client of the driver's store
    pmi: str  # host:port of the driver's PMI server; empty if there is none
    secret: bytes
    deadline_s: float  # deadline for joining, in seconds of time.monotonic()

    @property
    def size(self) -> int:
        return len(self.peers)

    def all_gather(self, name: str, value: str) -> list[str]:
        """Publish this rank's value under a name; return the values of all ranks, by rank. Raises RendezvousError."""
        return self.store.all_gather(name, value, self.deadline_s)

    def open_channel(self) -> OpenChannel:
        opened: OpenChannel = LIBRARIES.get(self.library)(self.channel.transport, self.channel.device, self.secret)
        return opened


Transfer = tuple[int | str, int | str, int]
"""Source, destination and bytes. An end is the number of a rank, or the name of a parameter server such as ps-0."""


class Peers(ABC):
    """Connections to the other ranks. `barrier` and `all_reduce` raise ExchangeFailed.

    channel: counts the traffic; None if only the kernel counts it.
    addresses: at which other ranks reach this rank, if they use IP.
    """

    channel: OpenChannel | None = None
    addresses: tuple[str, ...] = ()

    @abstractmethod
    def barrier(self, call: int, deadline_s: float) -> None:
        """Wait until all ranks have called it, before exchange number `call`."""

    @abstractmethod
    def all_reduce(self, array: Array, deadline_s: float) -> None:
        """Sum the array in place; see `dlobd.network.collectives.all_reduce`."""

    @abstractmethod
    def close(self) -> None: ...

    def carried(self) -> Sequence[Transfer]:
        """Return this rank's transfers since the last call, if they are known."""
        return ()

    def fail(self) -> None:
        """Report that this rank cannot continue, and wake the ranks that wait for it."""
        if self.channel is not None:
            self.channel.close()


class OutsideStepExchange(ABC):
    """Base class of exchanges outside of the compiled step. Subclasses connect the ranks."""

    inside_step: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True
    not_measured: ClassVar[NotMeasured | None] = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rank = 0
        self._store: StoreClient | None = None
        self.peers: Peers | None = None  # None for a single rank, and before `join`
        self._before: Snapshot | None = None
        self._fusions: dict[tuple[object, ...], Fusion] = {}
        self._calls = 0

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Return no variables, because TensorFlow does not connect to other ranks."""
        return {}

    def join(self, tf: TensorFlow, peers: Sequence[str], rank: int) -> None:
        """Connect to the other ranks, unless this rank is alone.

        Raises ExchangeFailed or RendezvousError for missing ranks, UsageError or SetupError for an unusable device.
        """
        if len(peers) < 2:
            return
        deadline_s = time.monotonic() + JOIN_S
        rendezvous = json.loads(os.environ[RENDEZVOUS])
        secret = rendezvous["secret"].encode()
        self._rank = rank
        self._store = StoreClient(rendezvous["address"], rank, secret, deadline_s)
        self._before = Snapshot.read()
        self.peers = self.connect(
            JoinContext(
                rank=rank,
                peers=tuple(peers),
                channel=_with_device(self._settings.channel, peers[rank]),
                library=self._settings.library,
                servers=self._settings.servers,
                store=self._store,
                pmi=rendezvous.get("pmi", ""),
                secret=secret,
                deadline_s=deadline_s,
            )
        )

    @abstractmethod
    def connect(self, context: JoinContext) -> Peers:
        """Connect this rank to the other ranks."""

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()  # each rank owns its variables

    def run(self, function: Callable[..., Tensor], arguments: Sequence[Tensor]) -> Tensor:
        return function(*arguments)

    def reduce(self, tf: TensorFlow, tensors: Sequence[Tensor], ranks: int) -> list[Tensor]:
        """Return the means over all ranks. Raises ExchangeFailed: a rank is gone, and is named, or too slow."""
        try:
            return self._reduce(tf, tensors, ranks)
        except ExchangeFailed as error:
            dead = self._store.first_dead() if self._store else None
            if self.peers is not None:
                self.peers.fail()
            if dead is None or f"rank {dead} " in str(error):
                raise
            raise ExchangeFailed(f"rank {dead} is gone; this rank failed with: {error}") from error

    def _reduce(self, tf: TensorFlow, tensors: Sequence[Tensor], ranks: int) -> list[Tensor]:
        deadline_s = time.monotonic() + DEADLINE_S
        call, self._calls = self._calls, self._calls + 1
        with tracing.span(kinds.PACK) as span:
            arrays = [np.asarray(memoryview(tensor)) for tensor in tensors]  # a view of the tensor's memory
            form = tuple((array.shape, array.dtype) for array in arrays)
            if (fusion := self._fusions.get(form)) is None:
                fusion = self._fusions[form] = Fusion(arrays, self._settings.fusion_bytes)
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
        """Wait in a barrier, so that the following span contains only the time of the wire."""
        with tracing.span(kinds.WAIT_FOR_PEERS, {"call": call}):
            peers.barrier(call, deadline_s)

    def close(self) -> None:
        if self.peers is not None:
            if self._before is not None:
                library, before, addresses = self._settings.library, self._before, self.peers.addresses
                traffic = self.peers.channel.evidence() if self.peers.channel else None
                lanes = traffic.lanes if traffic else ()
                attrs = record(self._rank, library, before, lanes=lanes, traffic=traffic, addresses=addresses)
                tracing.instant(kinds.TRANSPORT, **attrs)
                self._before = None
            self.peers.close()
        if self._store is not None:
            self._store.close()


def _with_device(channel: Channel, address: str) -> Channel:
    """Add the address that the launcher gave this rank as the device of a tcp channel without a device."""
    if channel.device or channel.transport != "tcp":
        return channel
    return Channel(f"{channel.transport}@{socket.gethostbyname(address.rpartition(':')[0])}")
