"""What the ranks of one host and network namespace used: the first of these rules that can tell.

| rule | holds where | says |
|---|---|---|
| connections | TCP connections between the ranks carried all bytes, and their interfaces counted them | tcp, or ipoib |
| devices | RDMA ports counted all bytes, and TCP connections between the ranks did not carry them | verbs |
| parts | TCP connections carried a part, or the library names several kinds | mixed |
| memory | the library says shm or local, and nothing that was counted could have carried the bytes | shm, local |
| interfaces | connections are not known, no device counted the bytes, and an interface did | tcp, or ipoib |
| | none of these | unknown |

A counter carried the bytes if it moved by at least as much in both directions. What a port of InfiniBand counted for
IPoIB is taken off. A port that counts packets only, as Soft-RoCE's, is taken to have filled each of them to its MTU. A
TCP connection is one between ranks if both of its ends are in the evidence: what a rank exchanges with HDFS is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dlobd.network.channels.base import Kind, Traffic
from dlobd.network.transport.amounts import (
    NOTHING,
    Amount,
    amount_of,
    carried_by,
    interface_words,
    kind_of,
    port_amount,
    port_words,
)
from dlobd.network.transport.counters import PortCounts, Snapshot
from dlobd.network.transport.evidence import TransportEvidence
from dlobd.network.transport.tcp_info import TcpSocket, host_of

PARTLY = 0.1
"""TCP connections that carried less than this share of the bytes only set something up."""

WHOLLY = 0.99
"""Those that carried this much carried all: a library counts what it gave to the kernel, the kernel what it sent."""

NOTICEABLE = 0.01
"""A device or interface that carried less than this share of the bytes is not named."""

LANES: tuple[tuple[str, Kind], ...] = (
    ("rc", "verbs"),
    ("dc", "verbs"),
    ("ud", "verbs"),
    ("srd", "verbs"),
    ("tcp", "tcp"),
    ("posix", "shm"),
    ("sysv", "shm"),
    ("xpmem", "shm"),
    ("cma", "shm"),
    ("knem", "shm"),
    ("self", "local"),
)
"""How the names of UCX's transports begin (its documentation of UCX_TLS), and what they are."""


@dataclass(frozen=True, slots=True)
class Used:
    """What was used on one host.

    homes: the interfaces whose addresses were used; bytes between ranks of one host go over `lo` all the same.
    home_addresses: those addresses; `addresses` has what ranks said of themselves too.
    excluded: kinds that it certainly was not.
    """

    kind: Kind
    words: tuple[str, ...]
    devices: frozenset[str] = frozenset()
    interfaces: frozenset[str] = frozenset()
    homes: frozenset[str] = frozenset()
    home_addresses: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    soft: bool = False
    excluded: frozenset[Kind] = frozenset()


def used(members: Sequence[TransportEvidence], ends: frozenset[tuple[str, str]], alone: bool) -> Used:
    """By the ranks of one host and namespace.

    Args:
        ends: local and peer address of the TCP connections of all ranks.
        alone: there are no ranks elsewhere.
    """
    host = _Host.of(members, ends, alone)
    words = tuple(_said(member) for member in members)
    if host.need is None:
        return Used("unknown", (*words, "how many bytes were exchanged is not known"))
    if host.need == NOTHING:
        return Used("unknown", (*words, "no bytes were exchanged"))
    if host.tcp is not None:
        words = (*words, f"TCP connections between ranks on {host.name} carried {host.tcp}")
    for rule in (_by_connections, _by_devices, _in_parts, _by_memory, _by_interfaces):
        if (found := rule(host, host.need)) is not None:
            return Used(
                found.kind, (*words, *found.words), found.devices, found.interfaces, found.homes, found.home_addresses,
                found.addresses | host.addresses, found.soft, host.excluded(host.need),
            )  # fmt: skip
    ports = tuple(port_words(host.counted, port, host.need) for port in host.candidates) or (
        "this host has no RDMA device",
    )
    return Used("unknown", (*words, *ports), addresses=host.addresses, excluded=host.excluded(host.need))


@dataclass(frozen=True, slots=True)
class _Host:
    """need: what was exchanged; of a library that does not count, what TCP connections carried.

    tcp, sockets: TCP connections between ranks; None where they are not known.
    """

    name: str
    alone: bool
    members: tuple[TransportEvidence, ...]
    counted: Snapshot
    need: Amount | None
    tcp: Amount | None
    sockets: tuple[TcpSocket, ...]
    claimed: frozenset[Kind]
    addresses: frozenset[str]

    @classmethod
    def of(cls, members: Sequence[TransportEvidence], ends: frozenset[tuple[str, str]], alone: bool) -> _Host:
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
        """The ports that the library names, or all."""
        named = {lane.partition("/")[2] for member in self.members for lane in member.lanes}
        return tuple(port for port in self.counted.ports if port.name in named) or self.counted.ports

    def is_here(self, address: str) -> bool:
        return address.startswith("127.") or self.counted.home(address) is not None

    def excluded(self, need: Amount) -> frozenset[Kind]:
        """What it certainly was not: counters that are known did not move by as much."""
        # connections that were closed too early are not told: against the library's own word they prove nothing
        proved = self.not_by_tcp and "tcp" not in self.claimed
        not_tcp: frozenset[Kind] = frozenset(("tcp", "ipoib")) if proved else frozenset()
        amounts = [port_amount(self.counted, port) for port in self.candidates]
        known = [amount for amount in amounts if amount is not None]
        if len(known) == len(amounts) and not sum(known, NOTHING).covers(need):
            return not_tcp | {"verbs"}
        return not_tcp


# ---- the rules


def _by_connections(host: _Host, need: Amount) -> Used | None:
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
            words.append(f"{local} is of {home}; both ends are on {host.name}, so that the bytes went over lo")
    return _over(host, over, homes, addresses, tuple(dict.fromkeys(words)))


def _over(
    host: _Host, over: dict[str | None, list[TcpSocket]], homes: set[str], addresses: set[str], words: tuple[str, ...]
) -> Used:
    """The verdict where bytes went over these interfaces, if their counters say so too."""
    kinds: set[Kind] = set()
    names: set[str] = set()
    for name, sockets in over.items():
        carried, again_bytes = _carried(sockets), sum(one.again_bytes for one in sockets)
        interface = host.counted.interface(name) if name else None
        amount = amount_of(interface.counts) if interface else None
        if interface is None or amount is None:
            kinds.add("unknown")
            words = (*words, f"the counters of {name or 'the interface of these addresses'} are missing")
            continue
        if not amount.covers(carried):
            words = (*words, f"{name} counted only {amount}")
            elsewhere = [
                one
                for one in host.counted.interfaces
                if one.name != name and carried_by(amount_of(one.counts), carried)
            ]
            if len(elsewhere) != 1:
                kinds.add("unknown")
                continue
            (interface,) = elsewhere
        words = (*words, interface_words(interface, carried, again_bytes))
        kinds.add(kind_of(interface))
        names.add(interface.name)
    return Used(
        _one(kinds), words, interfaces=frozenset(names), homes=frozenset(homes), home_addresses=frozenset(addresses),
        addresses=frozenset(addresses),
    )  # fmt: skip


def _by_devices(host: _Host, need: Amount) -> Used | None:
    if host.tcp_share is not None and not host.not_by_tcp:
        return None
    moved = {
        port: amount
        for port in host.candidates
        if (amount := port_amount(host.counted, port)) and amount.share_of(need) > 0
    }
    if not sum(moved.values(), NOTHING).covers(need):
        return None
    if "verbs" not in host.claimed:
        own = {name for port in moved for name in port.interfaces}
        others = any(carried_by(amount_of(one.counts), need) for one in host.counted.interfaces if one.name not in own)
        # what the library does not call verbs is only where nothing else can have carried the bytes
        if host.claimed & {"shm", "local"} or (not host.not_by_tcp and (host.claimed or others)):
            return None
    ports = [port for port, amount in moved.items() if amount.share_of(need) >= NOTICEABLE]
    return Used(
        "verbs",
        tuple(port_words(host.counted, port, need) for port in ports),
        devices=frozenset(port.name for port in ports),
        interfaces=frozenset(name for port in ports for name in port.interfaces if port.link_layer == "Ethernet"),
        soft=any(port.soft for port in ports),
    )


def _in_parts(host: _Host, need: Amount) -> Used | None:
    if host.tcp_share is not None and not host.not_by_tcp and host.claimed != {"tcp"}:
        return Used("mixed", (f"TCP connections carried {host.tcp_share:.0%} of the bytes",))
    if len(host.claimed) > 1:
        return Used("mixed", (f"the library names several: {', '.join(sorted(host.claimed))}",))
    return None


def _by_memory(host: _Host, need: Amount) -> Used | None:
    if host.claimed not in ({"shm"}, {"local"}):
        return None
    suspects = [port.name for port in host.counted.ports if carried_by(port_amount(host.counted, port), need)]
    if not host.not_by_tcp:
        suspects += [one.name for one in host.counted.interfaces if carried_by(amount_of(one.counts), need)]
    (kind,) = host.claimed
    if suspects:
        return Used("unknown", (f"{', '.join(suspects)} counted as much as was exchanged: {kind} is not proved",))
    counters = "no TCP connection of the ranks" if host.not_by_tcp else "no interface of the host"
    return Used(kind, (f"{counters}, and no RDMA device, carried as much as was exchanged",))


def _by_interfaces(host: _Host, need: Amount) -> Used | None:
    if host.claimed & {"shm", "local"} or (host.not_by_tcp and host.claimed != {"tcp"}):
        return None
    if "verbs" in host.claimed and "verbs" not in host.excluded(need):
        return None  # the counters of a device are missing: it may have been
    words = tuple(port_words(host.counted, port, need) for port in host.candidates) if "verbs" in host.claimed else ()
    local = {found for address in host.addresses for found in re.findall(r"\d+\.\d+\.\d+\.\d+", address)}
    by_address = {address: home for address in local if (home := host.counted.home(address))}
    homes = set(by_address.values())
    # of its own ranks over lo, of others over the interface of the address
    names = ({"lo"} if len(host.members) > 1 else set()) | (set() if host.alone else homes)
    if not names or not homes:
        names = {one.name for one in host.counted.interfaces if carried_by(amount_of(one.counts), need)}
    carrying = [one for name in sorted(names) if (one := host.counted.interface(name)) is not None]
    amounts = [amount for one in carrying if (amount := amount_of(one.counts)) is not None]
    if len(amounts) < len(carrying) or not sum(amounts, NOTHING).covers(need):
        return None
    return Used(
        _one({kind_of(one) for one in carrying}),
        (*words, *(interface_words(one, need) for one in carrying)),
        interfaces=frozenset(one.name for one in carrying),
        homes=frozenset(homes),
        home_addresses=frozenset(by_address),
    )


# ---- what the library says


def _one(kinds: set[Kind]) -> Kind:
    if not kinds or "unknown" in kinds:
        return "unknown"
    return next(iter(kinds)) if len(kinds) == 1 else "mixed"


def _claimed(member: TransportEvidence) -> frozenset[Kind]:
    """What the library itself says; IPoIB is TCP to it."""
    kinds = {kind for lane in member.lanes for start, kind in LANES if lane.startswith(start)}
    if not kinds and member.traffic is not None:
        kinds = {member.traffic.kind} - {"unknown", "mixed"}
    if len(kinds) > 1:
        kinds -= {"local"}  # of a process to itself
    return frozenset("tcp" if kind == "ipoib" else kind for kind in kinds)


def _carried(sockets: Sequence[TcpSocket]) -> Amount:
    return sum((Amount(one.sent_bytes, one.received_bytes) for one in sockets), NOTHING)


def _exchanged(traffic: Traffic) -> Amount:
    """A put is counted where it was asked for, and so is a get."""
    return Amount(traffic.sent_bytes + traffic.put_bytes, traffic.received_bytes + traffic.got_bytes)


def _said(member: TransportEvidence) -> str:
    traffic = member.traffic
    what = ", ".join(member.lanes) or (traffic.kind if traffic else "nothing of what it used")
    if traffic is None:
        return f"{member.who}: {member.library} says {what}, and counts no bytes"
    return f"{member.who}: {member.library} says {what}; {_exchanged(traffic)}"
