"""All-reduces of dlobd's own, over any channel: each rank listens on the channel's device, and nowhere else."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel, Traffic
from dlobd.network.collectives import barrier as barriers
from dlobd.network.collectives import base as collectives
from dlobd.network.collectives.halving_doubling import HalvingDoubling as HalvingDoublingAllReduce
from dlobd.network.collectives.mesh import ExchangeFailed, Mesh
from dlobd.network.collectives.ring import Ring as RingAllReduce
from dlobd.network.exchanges.all_reduce import AllReduceExchange, Meeting
from dlobd.network.formation.address_book import FormationError


class _OverMesh(AllReduceExchange):
    """By a collective over connections to some of the ranks."""

    collective: ClassVar[type[collectives.AllReduce]]

    def meet(self, meeting: Meeting) -> MeshPeers:
        """Connects to the partners of this rank."""
        channel: Channel = LIBRARIES.get(meeting.settings.library)(
            meeting.channel.transport, meeting.channel.device, meeting.secret
        )
        rank, size = meeting.rank, meeting.size
        partners = self.collective.partners(rank, size) | barriers.partners(rank, size)
        try:
            mesh = Mesh.join(rank, size, partners, channel, meeting.all_gather, meeting.deadline_s)
        except (ExchangeFailed, FormationError):
            channel.close()
            raise
        return MeshPeers(channel, mesh, self.collective)


class MeshPeers:
    """See `dlobd.network.exchanges.all_reduce.Peers`."""

    def __init__(self, channel: Channel, mesh: Mesh, collective: type[collectives.AllReduce]) -> None:
        self._channel = channel
        self._mesh = mesh
        self._collective = collective(mesh)

    def barrier(self, call: int, deadline_s: float) -> None:
        """See the contract."""
        barriers.barrier(self._mesh, deadline_s)

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        self._collective(array, deadline_s)

    def carried(self) -> list[tuple[int, int, int]]:
        """See the contract."""
        return self._mesh.carried()

    def evidence(self) -> Traffic | None:
        """See the contract."""
        return self._channel.evidence()

    def addresses(self) -> tuple[str, ...]:
        """See the contract."""
        return (self._mesh.address,)

    def fail(self) -> None:
        """See the contract."""
        self._channel.close()

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
