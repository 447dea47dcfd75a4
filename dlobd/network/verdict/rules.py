"""Verdict on a plane (Spark, HDFS, gradients): the kind of transport that carried its bytes, compared with the request.

The ranks of one host and network namespace are judged together, by the first rule that applies:

| rule | condition | kind |
|---|---|---|
| connections | TCP connections between the ranks carried all bytes, and their interfaces counted them | tcp, or ipoib |
| devices | RDMA ports counted all bytes, and TCP connections between the ranks did not carry them | verbs |
| parts | TCP connections carried a part, or the library names several kinds | mixed |
| memory | the library names shm or local, and no counter can have carried the bytes | shm, local |
| interfaces | connections are unknown, no device counted the bytes, and an interface counted them | tcp, or ipoib |
| | none of these | unknown |

An interface or port carried the bytes if its counters grew by at least as much in both directions. IPoIB's bytes are
subtracted from an InfiniBand port's. A port that counts only packets, such as Soft-RoCE's, is assumed to have
filled each packet to its MTU. A TCP connection is between ranks if both of its ends are in the evidence;
a rank's connection to HDFS is not.

A library's own report never proves verbs: the counters of a device must have grown by at least the exchanged bytes;
unchanged counters prove that verbs were not used. Hosts with different kinds make `mixed`; a host with an unknown kind
makes `unknown`. Counters include all processes of a host and network namespace, which makes them larger, never smaller.

If the request names a network in CIDR notation, all used addresses on every host must be in it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, ip_address

from dlobd.channel import TRANSPORTS, Channel, Kind
from dlobd.network.channels.base import Traffic
from dlobd.network.interfaces import network_of
from dlobd.network.verdict.byte_counts import (
    NOTHING,
    ByteCounts,
    byte_counts,
    covers,
    describe_interface,
    describe_port,
    kind_of,
    port_byte_counts,
)
from dlobd.network.verdict.evidence import InterfaceCounts, PortCounts, Snapshot, TcpSocket, TransportEvidence, host_of
from dlobd.record.run import Plane

PARTLY = 0.1  # TCP connections with less than this fraction of the bytes only set up the exchange

WHOLLY = 0.99
"""TCP connections with this fraction carried all bytes: the library counts bytes given to the kernel, and
the kernel may not have sent the last bytes."""

NOTICEABLE = 0.01  # devices and interfaces with less than this fraction of the bytes are not listed

LANES: Mapping[Kind, tuple[str, ...]] = {
    "verbs": ("rc", "dc", "ud", "srd"),
    "tcp": ("tcp",),
    "shm": ("posix", "sysv", "xpmem", "cma", "knem"),
    "local": ("self",),
}
"""Prefixes of UCX's transport names (documentation of UCX_TLS), by kind."""


def verdict(plane: str, requested: Channel | None, ranks: Sequence[TransportEvidence]) -> Plane:
    """Judge a plane by all ranks' evidence. `agrees` is None if no channel was requested."""
    places: dict[tuple[str, str], list[TransportEvidence]] = {}
    for one in sorted(ranks, key=lambda one: (one.server, one.rank)):
        places.setdefault(one.place, []).append(one)
    ends = _ends(ranks)
    found = [host_verdict(members, ends, alone=len(places) == 1) for members in places.values()]
    words = [sentence for one in found for sentence in one.words] or ["no rank recorded evidence of its transport"]
    kind = _one({one.kind for one in found})
    return Plane(
        plane,
        kind,
        _joined(one.devices for one in found),
        _joined(one.interfaces for one in found),
        tuple(sorted(frozenset[str]().union(*(one.addresses for one in found)))),
        any(one.soft for one in found),
        (*words, *_outside_words(requested, found)),
        str(requested or ""),
        _agrees(requested, kind, found),
    )


def _ends(ranks: Sequence[TransportEvidence]) -> frozenset[tuple[str, str]]:
    """Return (local, peer) addresses of the TCP connections between ranks, a pair for each end.

    A rank that has ended does not report its connections. The other end's report is enough if the connection leads to
    a rank's listener, or from a rank's host to the reporting rank's listener.
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


def plane_of_addresses(
    plane: str, requested: Channel | None, addresses: Sequence[str], snapshots: Sequence[Snapshot]
) -> Plane:
    """Judge a plane whose TCP bytes are not counted (Spark, HDFS), by the interfaces that have its addresses.

    The ranks' snapshots list the interfaces of their hosts.
    """
    homes = {address: _home(address, snapshots) for address in addresses}
    found = [home for home in homes.values() if home is not None]
    kind = _one({kind_of(home) if home else "unknown" for home in homes.values()})
    words = tuple(
        f"{address} is an address of {home.name}" if home else f"no host with a rank has the address {address}"
        for address, home in homes.items()
    )
    # the address of a host name is unknown here
    numbers = frozenset(address for address in map(_numeric, addresses) if network_of(address))
    place = HostVerdict(kind, words, homes=frozenset(one.name for one in found), home_addresses=numbers)
    evidence = (*words, "the plane uses TCP only; its bytes were not counted", *_outside_words(requested, [place]))
    agrees = _agrees(requested, kind, [place])
    asked = str(requested or "")
    return Plane(plane, kind, "", _joined([place.homes]), tuple(addresses), False, evidence, asked, agrees)


def _numeric(address: str) -> str:
    """Return the loopback address for the name localhost (RFC 6761), and other addresses unchanged."""
    return "127.0.0.1" if address == "localhost" else address


def _home(address: str, snapshots: Sequence[Snapshot]) -> InterfaceCounts | None:
    """Return the interface that has an address; None if it is unknown. All of 127/8 belongs to loopback."""
    number = _numeric(address)
    for snapshot in snapshots:
        name = snapshot.home("127.0.0.1" if number.startswith("127.") else number)
        if name is not None and (interface := snapshot.interface(name)) is not None:
            return interface
    return None


def _agrees(requested: Channel | None, kind: Kind, found: "Sequence[HostVerdict]") -> bool | None:
    if requested is None:
        return None
    wanted, device, network = TRANSPORTS[requested.transport].kind, requested.device, network_of(requested.device)
    if network is not None and _outside(network, found):
        return False
    if kind == "unknown":
        return False if any(wanted in one.excluded for one in found) else None
    if kind != wanted:
        return False
    if not device or kind not in ("verbs", "tcp", "ipoib"):
        return True
    # bytes between ranks of one host go over lo, so the request is judged by the addresses' interfaces
    places = [one.devices if kind == "verbs" else one.homes for one in found]
    if not all(places):
        return None
    if network is not None:
        return True
    return all(device in (name, name.partition(":")[0]) for some in places for name in some)


def _outside(network: IPv4Network, found: "Sequence[HostVerdict]") -> list[str]:
    used_there = sorted(frozenset[str]().union(*(one.home_addresses for one in found)))
    return [address for address in used_there if ip_address(address) not in network]


def _outside_words(requested: Channel | None, found: "Sequence[HostVerdict]") -> list[str]:
    network = network_of(requested.device) if requested else None
    outside = _outside(network, found) if network else []
    return [f"{', '.join(outside)} {'are' if len(outside) > 1 else 'is'} not in {network}"] if outside else []


def _joined(parts: Iterable[frozenset[str]]) -> str:
    return ", ".join(sorted(frozenset[str]().union(*parts)))


# ---- the ranks of one host


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """Verdict on the ranks of one host."""

    kind: Kind
    words: tuple[str, ...]
    devices: frozenset[str] = frozenset()
    interfaces: frozenset[str] = frozenset()
    homes: frozenset[str] = frozenset()  # interfaces with the used addresses; bytes within a host go over `lo`
    home_addresses: frozenset[str] = frozenset()  # the used addresses
    addresses: frozenset[str] = frozenset()  # `home_addresses`, and the addresses that ranks reported
    soft: bool = False
    excluded: frozenset[Kind] = frozenset()  # kinds that were certainly not used


def host_verdict(members: Sequence[TransportEvidence], ends: frozenset[tuple[str, str]], alone: bool) -> HostVerdict:
    """Judge the ranks of one host and namespace. `alone`: True if no other host has ranks.

    `ends` are (local, peer) addresses of the TCP connections of all ranks.
    """
    host = _Host.of(members, ends, alone)
    words = tuple(_describe(member) for member in members)
    if host.need is None:
        return HostVerdict("unknown", (*words, "the number of exchanged bytes is unknown"))
    if host.need == NOTHING:
        return HostVerdict("unknown", (*words, "no bytes were exchanged"))
    if host.tcp is not None:
        words = (*words, f"TCP connections between ranks on {host.name} carried {host.tcp}")
    for rule in (_by_connections, _by_devices, _in_parts, _by_memory, _by_interfaces):
        if (found := rule(host, host.need)) is not None:
            return replace(
                found,
                words=(*words, *found.words),
                addresses=found.addresses | host.addresses,
                excluded=host.excluded(host.need),
            )
    ports = tuple(describe_port(host.counted, port, host.need) for port in host.candidates) or (
        "this host has no RDMA device",
    )
    return HostVerdict("unknown", (*words, *ports), addresses=host.addresses, excluded=host.excluded(host.need))


@dataclass(frozen=True, slots=True)
class _Host:
    name: str
    alone: bool
    members: tuple[TransportEvidence, ...]
    counted: Snapshot
    need: ByteCounts | None  # exchanged bytes, by the library's count; by TCP connections if the library does not count
    tcp: ByteCounts | None  # bytes of connections between ranks; None if they are unknown
    sockets: tuple[TcpSocket, ...]
    claimed: frozenset[Kind]
    addresses: frozenset[str]

    @classmethod
    def of(cls, members: Sequence[TransportEvidence], ends: frozenset[tuple[str, str]], alone: bool) -> "_Host":
        first = min((member.before for member in members), key=lambda snapshot: snapshot.at_ns)
        last = max((member.after for member in members), key=lambda snapshot: snapshot.at_ns)
        connections = [member.after.since(member.before).sockets for member in members]
        known = [some for some in connections if some is not None]
        sockets = tuple(one for some in known for one in some if (one.peer, one.local) in ends)
        tcp = _carried(sockets) if len(known) == len(connections) else None
        exchanged = [_exchanged(member.traffic) for member in members if member.traffic is not None]
        return cls(
            last.host,
            alone,
            tuple(members),
            last.since(first),
            sum(exchanged, NOTHING) if len(exchanged) == len(members) else tcp,
            tcp,
            sockets,
            frozenset(kind for member in members for kind in _claimed(member)),
            frozenset(address for member in members for address in member.addresses),
        )

    @property
    def tcp_share(self) -> float | None:
        return None if self.tcp is None or self.need is None else self.tcp.share_of(self.need)

    @property
    def not_by_tcp(self) -> bool:
        return self.tcp_share is not None and self.tcp_share < PARTLY

    @property
    def candidates(self) -> tuple[PortCounts, ...]:
        """RDMA ports that the library reports; all ports if it reports none."""
        named = {lane.partition("/")[2] for member in self.members for lane in member.lanes}
        return tuple(port for port in self.counted.ports if port.name in named) or self.counted.ports

    def is_here(self, address: str) -> bool:
        return address.startswith("127.") or self.counted.home(address) is not None

    def excluded(self, need: ByteCounts) -> frozenset[Kind]:
        """Return the kinds that were certainly not used, because known counters did not grow enough."""
        # connections that were closed early are not counted: few TCP bytes do not disprove a report of TCP
        proved = self.not_by_tcp and "tcp" not in self.claimed
        not_tcp: frozenset[Kind] = frozenset(("tcp", "ipoib")) if proved else frozenset()
        amounts = [port_byte_counts(self.counted, port) for port in self.candidates]
        known = [amount for amount in amounts if amount is not None]
        if len(known) == len(amounts) and not sum(known, NOTHING).covers(need):
            return not_tcp | {"verbs"}
        return not_tcp


# ---- the rules


def _by_connections(host: _Host, need: ByteCounts) -> HostVerdict | None:
    if host.tcp_share is None or host.tcp_share < WHOLLY:
        return None
    over: dict[str | None, list[TcpSocket]] = {}
    homes: set[str] = set()
    addresses: set[str] = set()
    words: list[str] = []
    for one in host.sockets:
        local = host_of(one.local)
        if max(one.sent_bytes, one.received_bytes) < NOTICEABLE * max(need.sent_bytes, need.received_bytes):
            continue
        home = host.counted.home(local)
        name = "lo" if host.is_here(host_of(one.peer)) else home
        over.setdefault(name, []).append(one)
        homes |= {home} if home else set()
        addresses |= {local}
        if name == "lo" and home not in (None, "lo"):
            words.append(f"{local} belongs to {home}; both ends are on {host.name}, so the bytes went over lo")
    return _over(host, over, homes, addresses, tuple(dict.fromkeys(words)))


def _over(
    host: _Host, over: dict[str | None, list[TcpSocket]], homes: set[str], addresses: set[str], words: tuple[str, ...]
) -> HostVerdict:
    """Judge connections (`over`, by interface); the counters of their interfaces must cover the carried bytes."""
    kinds: set[Kind] = set()
    names: set[str] = set()
    for name, sockets in over.items():
        carried, again_bytes = _carried(sockets), sum(one.again_bytes for one in sockets)
        interface = host.counted.interface(name) if name else None
        amount = byte_counts(interface.counts) if interface else None
        if interface is None or amount is None:
            kinds.add("unknown")
            words = (*words, f"the counters of {name or 'the interface of these addresses'} are missing")
            continue
        if not amount.covers(carried):
            words = (*words, f"{name} counted only {amount}")
            elsewhere = [
                one for one in host.counted.interfaces if one.name != name and covers(byte_counts(one.counts), carried)
            ]
            if len(elsewhere) != 1:
                kinds.add("unknown")
                continue
            (interface,) = elsewhere
        words = (*words, describe_interface(interface, carried, again_bytes))
        kinds.add(kind_of(interface))
        names.add(interface.name)
    return HostVerdict(
        _one(kinds),
        words,
        interfaces=frozenset(names),
        homes=frozenset(homes),
        home_addresses=frozenset(addresses),
        addresses=frozenset(addresses),
    )


def _by_devices(host: _Host, need: ByteCounts) -> HostVerdict | None:
    if host.tcp_share is not None and not host.not_by_tcp:
        return None
    moved = {
        port: amount
        for port in host.candidates
        if (amount := port_byte_counts(host.counted, port)) and amount.share_of(need) > 0
    }
    if not sum(moved.values(), NOTHING).covers(need):
        return None
    if "verbs" not in host.claimed:
        own = {name for port in moved for name in port.interfaces}
        others = any(covers(byte_counts(one.counts), need) for one in host.counted.interfaces if one.name not in own)
        # if the library does not report verbs, assume verbs only if no other interface can have carried the bytes
        if host.claimed & {"shm", "local"} or (not host.not_by_tcp and (host.claimed or others)):
            return None
    ports = [port for port, amount in moved.items() if amount.share_of(need) >= NOTICEABLE]
    return HostVerdict(
        "verbs",
        tuple(describe_port(host.counted, port, need) for port in ports),
        devices=frozenset(port.name for port in ports),
        interfaces=frozenset(name for port in ports for name in port.interfaces if port.link_layer == "Ethernet"),
        soft=any(port.soft for port in ports),
    )


def _in_parts(host: _Host, need: ByteCounts) -> HostVerdict | None:
    if host.tcp_share is not None and not host.not_by_tcp and host.claimed != {"tcp"}:
        return HostVerdict("mixed", (f"TCP connections carried {100 * host.tcp_share:.0f} % of the bytes",))
    if len(host.claimed) > 1:
        return HostVerdict("mixed", (f"the library reports several kinds: {', '.join(sorted(host.claimed))}",))
    return None


def _by_memory(host: _Host, need: ByteCounts) -> HostVerdict | None:
    if host.claimed not in ({"shm"}, {"local"}):
        return None
    suspects = [port.name for port in host.counted.ports if covers(port_byte_counts(host.counted, port), need)]
    if not host.not_by_tcp:
        suspects += [one.name for one in host.counted.interfaces if covers(byte_counts(one.counts), need)]
    (kind,) = host.claimed
    if suspects:
        return HostVerdict("unknown", (f"{kind} is not proven: the counters of {', '.join(suspects)} cover them, too",))
    counters = "the TCP connections of the ranks" if host.not_by_tcp else "the interfaces of the host"
    return HostVerdict(kind, (f"neither {counters} nor the RDMA devices carried all exchanged bytes",))


def _by_interfaces(host: _Host, need: ByteCounts) -> HostVerdict | None:
    if host.claimed & {"shm", "local"} or (host.not_by_tcp and host.claimed != {"tcp"}):
        return None
    if "verbs" in host.claimed and "verbs" not in host.excluded(need):
        return None  # the device's counters are unknown: it may have been used
    words = (
        tuple(describe_port(host.counted, port, need) for port in host.candidates) if "verbs" in host.claimed else ()
    )
    local = {found for address in host.addresses for found in re.findall(r"\d+\.\d+\.\d+\.\d+", address)}
    by_address = {address: home for address in local if (home := host.counted.home(address))}
    homes = set(by_address.values())
    # traffic between ranks of this host goes over lo, other traffic over the address's interface
    names = ({"lo"} if len(host.members) > 1 else set()) | (set() if host.alone else homes)
    if not names or not homes:
        names = {one.name for one in host.counted.interfaces if covers(byte_counts(one.counts), need)}
    carrying = [one for name in sorted(names) if (one := host.counted.interface(name)) is not None]
    amounts = [amount for one in carrying if (amount := byte_counts(one.counts)) is not None]
    if len(amounts) < len(carrying) or not sum(amounts, NOTHING).covers(need):
        return None
    return HostVerdict(
        _one({kind_of(one) for one in carrying}),
        (*words, *(describe_interface(one, need) for one in carrying)),
        interfaces=frozenset(one.name for one in carrying),
        homes=frozenset(homes),
        home_addresses=frozenset(by_address),
    )


# ---- the library's report


def _one(kinds: set[Kind]) -> Kind:
    if not kinds or "unknown" in kinds:
        return "unknown"
    return next(iter(kinds)) if len(kinds) == 1 else "mixed"


def _claimed(member: TransportEvidence) -> frozenset[Kind]:
    """Return the kinds that the library reports. UCX reports IPoIB as TCP, so `ipoib` becomes `tcp`."""
    kinds = {kind for lane in member.lanes for kind, starts in LANES.items() if lane.startswith(starts)}
    if not kinds and member.traffic is not None:
        kinds = {member.traffic.kind} - {"unknown", "mixed"}
    if len(kinds) > 1:
        kinds -= {"local"}  # traffic of a process with itself
    return frozenset("tcp" if kind == "ipoib" else kind for kind in kinds)


def _carried(sockets: Sequence[TcpSocket]) -> ByteCounts:
    return sum((ByteCounts(one.sent_bytes, one.received_bytes) for one in sockets), NOTHING)


def _exchanged(traffic: Traffic) -> ByteCounts:
    return ByteCounts(traffic.sent_bytes + traffic.put_bytes, traffic.received_bytes + traffic.got_bytes)


def _describe(member: TransportEvidence) -> str:
    traffic = member.traffic
    what = ", ".join(member.lanes) or (traffic.kind if traffic else "nothing about its transport")
    if traffic is None:
        return f"{member.who}: {member.library} reports {what}, and counts no bytes"
    return f"{member.who}: {member.library} reports {what}; {_exchanged(traffic)}"
