"""The verdict on a plane: by what its bytes went, and whether that is what was asked for. Pure, over ranks' evidence.

A library's own words alone never prove verbs: the counters of a device must have moved by at least what was exchanged,
and no delta is a proof that it was not verbs. `on_host` has the rules for the ranks of one host. Ranks that used
different kinds make `mixed`; one of which it is not known makes `unknown`. Counters are those of a whole host and
network namespace: what others carry there makes them larger, never smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlobd.network.channels.base import Kind
from dlobd.network.channels.spec import ChannelSpec
from dlobd.network.transport.amounts import kind_of
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import TransportEvidence
from dlobd.network.transport.on_host import Used, used

ASKED: dict[str, Kind] = {"tcp": "tcp", "ipoib": "ipoib", "rdma": "verbs", "shm": "shm", "inproc": "local"}
"""A channel's transport, and the kind that it asks for."""


@dataclass(frozen=True, slots=True)
class Plane:
    """One of the ways on which a job's processes talk: `exchange`, `tensorflow-grpc`, `spark`, `hdfs`.

    device: RDMA devices and ports; empty where there is none, several with commas between them.
    interface: what counted the bytes of IP, or carries RoCE; `lo` between ranks of one host.
    soft: one of the devices is in software: it counts as verbs, never as performance.
    evidence: sentences, with figures.
    asked: the channel, as it was asked for; empty where nothing was.
    agrees: whether that is what was used; None where nothing was asked for, or it is not known.
    """

    plane: str
    kind: Kind
    device: str
    interface: str
    addresses: tuple[str, ...]
    soft: bool
    evidence: tuple[str, ...]
    asked: str
    agrees: bool | None

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Plane:
        """The plane of a record.

        Raises:
            TypeError: it is none.
        """
        return cls(**{**found, "addresses": tuple(found["addresses"]), "evidence": tuple(found["evidence"])})

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return asdict(self)

    def disagreement(self) -> str:
        """One line where what was used is not what was asked for; empty otherwise."""
        if self.agrees is not False:
            return ""
        if self.kind == "unknown":
            return f"{self.plane}: {self.asked} was asked for, and it was not used: {self.evidence[-1]}"
        where = self.device or self.interface
        return f"{self.plane}: {self.asked} was asked for, and {self.kind}{f' ({where})' if where else ''} was used"


def verdict(plane: str, asked: str, ranks: Sequence[TransportEvidence]) -> Plane:
    """By all ranks' evidence.

    Args:
        asked: the channel, TRANSPORT[@DEVICE]; empty where nothing was asked for.

    Raises:
        ValueError, KeyError: `asked` is no channel.
    """
    if not ranks:
        return Plane(plane, "unknown", "", "", (), False, ("no rank left evidence of its transport",), asked, None)
    places: dict[tuple[str, str], list[TransportEvidence]] = {}
    for one in sorted(ranks, key=lambda one: one.rank):
        places.setdefault(one.place, []).append(one)
    ends = frozenset((end.local, end.peer) for one in ranks for end in one.after.sockets or ())
    found = [used(members, ends, alone=len(places) == 1) for members in places.values()]
    kinds = {one.kind for one in found}
    kind: Kind = "unknown" if "unknown" in kinds else found[0].kind if len(kinds) == 1 else "mixed"
    return Plane(
        plane,
        kind,
        _joined(one.devices for one in found),
        _joined(one.interfaces for one in found),
        tuple(sorted(frozenset[str]().union(*(one.addresses for one in found)))),
        any(one.soft for one in found),
        tuple(sentence for one in found for sentence in one.words),
        asked,
        _agrees(asked, kind, found),
    )


def plane_of_addresses(plane: str, asked: str, addresses: Sequence[str], snapshot: Snapshot) -> Plane:
    """Of a plane that can only be TCP, as Spark's, HDFS's and gRPC's are: by whose interfaces' addresses it uses.

    Its bytes are not counted apart from others'."""
    homes = {address: snapshot.home(address) for address in addresses}
    interfaces = {home for home in homes.values() if home is not None}
    kinds = {kind_of(one) for name in interfaces if (one := snapshot.interface(name)) is not None}
    known = len(kinds) == 1 and None not in homes.values()
    kind: Kind = kinds.pop() if known else "unknown" if None in homes.values() or not kinds else "mixed"
    words = tuple(
        f"{address} is an address of {home or 'no interface of this host'}" for address, home in homes.items()
    )
    place = Used(kind, words, homes=frozenset(interfaces))
    evidence, agrees = (*words, "it uses TCP only; its bytes were not counted"), _agrees(asked, kind, [place])
    return Plane(plane, kind, "", _joined([place.homes]), tuple(addresses), False, evidence, asked, agrees)


def _agrees(asked: str, kind: Kind, found: Sequence[Used]) -> bool | None:
    if not asked:
        return None
    spec = ChannelSpec.parse(asked)
    wanted, device = ASKED[spec.transport], spec.device
    if kind == "unknown":
        return False if any(wanted in one.excluded for one in found) else None
    if kind != wanted:
        return False
    if not device or kind not in ("verbs", "tcp", "ipoib"):
        return True
    # bytes between ranks of one host go over lo: what was asked for is whose address it is
    places = [one.devices if kind == "verbs" else one.homes for one in found]
    if not all(places):
        return None
    return all(device in (name, name.partition(":")[0]) for some in places for name in some)


def _joined(parts: Iterable[frozenset[str]]) -> str:
    return ", ".join(sorted(frozenset[str]().union(*parts)))
