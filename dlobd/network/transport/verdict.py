"""The verdict on a plane: by what its bytes went, and whether that is what was asked for. Pure, over ranks' evidence.

A library's own words alone never prove verbs: the counters of a device must have moved by at least what was exchanged,
and no delta is a proof that it was not verbs. `on_host` has the rules for the ranks of one host. Ranks that used
different kinds make `mixed`; one of which it is not known makes `unknown`. Counters are those of a whole host and
network namespace: what others carry there makes them larger, never smaller.

Where a network was asked for, the addresses that were used must lie in it, on every host: names of interfaces differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, ip_address

from dlobd.network.channels.base import Kind
from dlobd.network.channels.spec import ChannelSpec
from dlobd.network.interfaces import network_of
from dlobd.network.transport.amounts import kind_of
from dlobd.network.transport.counters import InterfaceCounts, Snapshot
from dlobd.network.transport.evidence import TransportEvidence
from dlobd.network.transport.on_host import Used, used
from dlobd.network.transport.tcp_info import host_of
from dlobd.record.run import Plane

ASKED: dict[str, Kind] = {"tcp": "tcp", "ipoib": "ipoib", "rdma": "verbs", "shm": "shm", "inproc": "local"}
"""A channel's transport, and the kind that it asks for."""


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
    for one in sorted(ranks, key=lambda one: (one.server, one.rank)):
        places.setdefault(one.place, []).append(one)
    ends = _ends(ranks)
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
        (*(sentence for one in found for sentence in one.words), *_outside_words(asked, found)),
        asked,
        _agrees(asked, kind, found),
    )


def _ends(ranks: Sequence[TransportEvidence]) -> frozenset[tuple[str, str]]:
    """Local and peer address of the TCP connections between ranks, from both of their ends.

    A rank that has ended takes its connections with it, so that the other end may be the only one that is known: it is
    one between ranks too if it leads to where a rank listened, or comes from a rank's host to where this one did.
    """
    listened = {":".join(address.split(":")[-2:]) for one in ranks for address in one.addresses if ":" in address}
    hosts = {host_of(address) for address in listened}
    sockets = [socket for one in ranks for socket in one.after.sockets or ()]
    met = {
        (one.peer, one.local)
        for one in sockets
        if one.peer in listened or (one.local in listened and host_of(one.peer) in hosts)
    }
    return frozenset(met | {(one.local, one.peer) for one in sockets})


def plane_of_addresses(plane: str, asked: str, addresses: Sequence[str], snapshots: Sequence[Snapshot]) -> Plane:
    """Of a plane that can only be TCP, as Spark's and HDFS's are: by whose interfaces' addresses it uses.

    Its bytes are not counted apart from others'.

    Args:
        snapshots: of the hosts whose interfaces are known: those of the ranks.
    """
    homes = {address: _home(address, snapshots) for address in addresses}
    found = [home for home in homes.values() if home is not None]
    kinds = {kind_of(one) for one in found}
    known = len(kinds) == 1 and None not in homes.values()
    kind: Kind = kinds.pop() if known else "unknown" if None in homes.values() or not kinds else "mixed"
    words = tuple(
        f"{address} is an address of {home.name if home else 'no interface of a host with a rank'}"
        for address, home in homes.items()
    )
    # a name is no address: where it leads is not known here
    numbers = frozenset(address for address in map(_numeric, addresses) if network_of(address))
    place = Used(kind, words, homes=frozenset(one.name for one in found), home_addresses=numbers)
    evidence = (*words, "it uses TCP only; its bytes were not counted", *_outside_words(asked, [place]))
    agrees = _agrees(asked, kind, [place])
    return Plane(plane, kind, "", _joined([place.homes]), tuple(addresses), False, evidence, asked, agrees)


def _numeric(address: str) -> str:
    """The name localhost is loopback's address (RFC 6761)."""
    return "127.0.0.1" if address == "localhost" else address


def _home(address: str, snapshots: Sequence[Snapshot]) -> InterfaceCounts | None:
    """The interface that has the address. All of 127/8 is loopback's."""
    number = _numeric(address)
    for snapshot in snapshots:
        name = snapshot.home("127.0.0.1" if number.startswith("127.") else number)
        if name is not None and (interface := snapshot.interface(name)) is not None:
            return interface
    return None


def _agrees(asked: str, kind: Kind, found: Sequence[Used]) -> bool | None:
    if not asked:
        return None
    spec = ChannelSpec.parse(asked)
    wanted, device, network = ASKED[spec.transport], spec.device, network_of(spec.device)
    if network is not None and _outside(network, found):
        return False
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
    if network is not None:
        return True
    return all(device in (name, name.partition(":")[0]) for some in places for name in some)


def _outside(network: IPv4Network, found: Sequence[Used]) -> list[str]:
    """The addresses that were used and are not in the network."""
    used_there = sorted(frozenset[str]().union(*(one.home_addresses for one in found)))
    return [address for address in used_there if ip_address(address) not in network]


def _outside_words(asked: str, found: Sequence[Used]) -> list[str]:
    network = network_of(ChannelSpec.parse(asked).device) if asked else None
    outside = _outside(network, found) if network else []
    return [f"{', '.join(outside)} {'are' if len(outside) > 1 else 'is'} not in {network}"] if outside else []


def _joined(parts: Iterable[frozenset[str]]) -> str:
    return ", ".join(sorted(frozenset[str]().union(*parts)))
