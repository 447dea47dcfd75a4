"""What one rank saw of a transport: what its library says, and the kernel's counters before and after.

A rank takes a `Snapshot` before its channel is opened and calls `record` before it is closed: the connections' own
counters are gone with them. What it returns goes into one instant, and `TransportEvidence.from_attrs` reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlobd.network.channels.base import Traffic
from dlobd.network.transport.counters import Snapshot


@dataclass(frozen=True, slots=True)
class TransportEvidence:
    """Of one rank, or of one parameter server.

    rank: of a server its number.
    library: who carried: sockets, ucx, grpc, mpi, tensorflow.
    lanes: what the library says it used, TRANSPORT/DEVICE as UCX writes it: rc_mlx5/mlx5_0:1, tcp/eth0, sysv/memory.
    traffic: what its channel carried; None where the library does not count.
    addresses: where the rank's own channel listened.
    """

    rank: int
    library: str
    lanes: tuple[str, ...]
    traffic: Traffic | None
    addresses: tuple[str, ...]
    before: Snapshot
    after: Snapshot
    server: bool = False

    @property
    def who(self) -> str:
        """In words."""
        return f"ps-{self.rank}" if self.server else f"rank {self.rank}"

    @property
    def place(self) -> tuple[str, str]:
        """The host and the network namespace whose counters were read."""
        return self.after.host, self.after.namespace

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> TransportEvidence:
        """What `record` returned.

        Raises:
            KeyError, TypeError: it is something else.
        """
        traffic = attrs["traffic"]
        return cls(
            attrs["rank"],
            attrs["library"],
            tuple(attrs["lanes"]),
            None if traffic is None else Traffic(**{**traffic, "lanes": tuple(traffic.get("lanes", ()))}),
            tuple(attrs["addresses"]),
            Snapshot.from_json(attrs["before"]),
            Snapshot.from_json(attrs["after"]),
            attrs.get("server", False),
        )


def record(
    rank: int,
    library: str,
    before: Snapshot,
    *,
    lanes: Sequence[str] = (),
    traffic: Traffic | None = None,
    addresses: Sequence[str] = (),
    after: Snapshot | None = None,
    server: bool = False,
) -> dict[str, Any]:
    """The attributes of the instant. `after` is read now where it is not given."""
    return {
        "rank": rank,
        "server": server,
        "library": library,
        "lanes": list(lanes),
        "traffic": None if traffic is None else asdict(traffic),
        "addresses": list(addresses),
        "before": before.to_json(),
        "after": (after or Snapshot.read()).to_json(),
    }
