"""dlobd's own exchanges: gradients are summed in numpy's memory, outside of the step, by a collective over a channel.

    pack             tensors are copied into fusion buffers (`dlobd.network.exchanges.fusion`)
    wait for peers   a barrier, so that the time until the last rank has packed is that rank's, and not the wire's
    wire             the collective, one buffer after the other (`dlobd.network.collectives`)
    unpack           the means are divided out of the buffers, and become tensors

All four are spans of layer channel. Ranks meet as `dlobd.network.exchanges.meeting` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dlobd import tracing
from dlobd.network.collectives import barrier as barriers
from dlobd.network.collectives import base as collectives
from dlobd.network.collectives.halving_doubling import HalvingDoubling as HalvingDoublingAllReduce
from dlobd.network.collectives.mesh import ExchangeFailed, Mesh
from dlobd.network.collectives.ring import Ring as RingAllReduce
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.fusion import Fusion
from dlobd.network.exchanges.meeting import DEADLINE_S, Meeting
from dlobd.schema import NotMeasured
from dlobd.tracing import names


class _Exchange:
    """See `dlobd.network.exchanges.base.Exchange`."""

    inside_step: ClassVar[bool] = False
    not_measured: ClassVar[NotMeasured | None] = None
    collective: ClassVar[type[collectives.AllReduce]]

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._meeting: Meeting | None = None
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
        self._meeting = meeting = Meeting(self._settings, peers, rank)
        partners = self.collective.partners(rank, len(peers)) | barriers.partners(rank, len(peers))
        self._mesh = Mesh.join(rank, len(peers), partners, meeting.channel, meeting.all_gather, meeting.deadline_s)
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
            if self._meeting is None:
                raise
            raise self._meeting.failed(error) from None

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
            with tracing.span("channel", names.WIRE, bytes=fusion.bytes):
                for bucket in fusion.buckets:
                    self._all_reduce(bucket, deadline_s)
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
        if self._mesh is not None and self._meeting is not None:
            self._meeting.record_transport()
            self._mesh.close()
        if self._meeting is not None:
            self._meeting.leave()


class Ring(_Exchange):
    """By a ring all-reduce."""

    collective = RingAllReduce


class HalvingDoubling(_Exchange):
    """By recursive halving and doubling."""

    collective = HalvingDoublingAllReduce
