"""dlobd's all-reduces over any channel; each rank listens only on the channel's device."""

from typing import ClassVar

from dlobd.network.channels.base import Array, OpenChannel
from dlobd.network.collectives import all_reduce, mesh
from dlobd.network.collectives.mesh import ExchangeFailed, Mesh
from dlobd.network.exchanges.outside_step import JoinContext, OutsideStepExchange, Peers
from dlobd.network.rendezvous.store import RendezvousError


class _OverMesh(OutsideStepExchange):
    """Base class of exchanges by an all-reduce over connections to some of the ranks."""

    algorithm: ClassVar[type[all_reduce.AllReduce]]

    def connect(self, context: JoinContext) -> "MeshPeers":
        channel = context.open_channel()
        rank, size = context.rank, context.size
        partners = self.algorithm.partners(rank, size) | mesh.barrier_partners(rank, size)
        try:
            joined = Mesh.join(rank, size, partners, channel, context.all_gather, context.deadline_s)
        except (ExchangeFailed, RendezvousError):
            channel.close()
            raise
        return MeshPeers(channel, joined, self.algorithm)


class MeshPeers(Peers):
    """Connections to the other ranks by a mesh."""

    def __init__(self, channel: OpenChannel, joined: Mesh, algorithm: type[all_reduce.AllReduce]) -> None:
        self.channel: OpenChannel = channel
        self.addresses = (joined.address,)
        self._mesh = joined
        self._all_reduce = algorithm(joined)

    def barrier(self, call: int, deadline_s: float) -> None:
        mesh.barrier(self._mesh, deadline_s)

    def all_reduce(self, array: Array, deadline_s: float) -> None:
        self._all_reduce(array, deadline_s)

    def carried(self) -> list[tuple[int, int, int]]:
        return self._mesh.carried()

    def close(self) -> None:
        self._mesh.close()
        self.channel.close()


class Ring(_OverMesh):
    """Exchange `ring`: ring all-reduce over the channel."""

    algorithm = all_reduce.Ring


class HalvingDoubling(_OverMesh):
    """Exchange `halving-doubling`: recursive halving and doubling over the channel."""

    algorithm = all_reduce.HalvingDoubling
