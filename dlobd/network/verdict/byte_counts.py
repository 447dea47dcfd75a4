"""Byte counts in both directions, and the packet headers to subtract for the payload.

| framing | headers of a packet | source |
|---|---|---|
| tcp | 66: Ethernet 14, IPv4 20, TCP 20, timestamps 12 | IEEE 802.3, RFC 791, RFC 9293, RFC 7323 (Linux's default) |
| ipoib | 56: encapsulation 4, IPv4 20, TCP 20, timestamps 12 | RFC 4391, section 6 |
| infiniband | 24: LRH 8, BTH 12, ICRC 4 | InfiniBand Architecture Specification, volume 1; the VCRC is not counted |
| roce | 58: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4 | InfiniBand Architecture Specification, annex A17 (RoCE v2) |

Linux counts the bytes of an interface, also of `lo`, with the Ethernet header, but without preamble and checksum. If
the kernel hands several segments to a software driver at once (GSO), it counts one packet with one header. Therefore
headers are calculated from the counted packets, not from the MTU.
"""

from dataclasses import dataclass
from typing import Literal, Self

from dlobd.channel import Kind
from dlobd.network.interfaces import ETHERNET, INFINIBAND, LOOPBACK
from dlobd.network.verdict.evidence import Counts, InterfaceCounts, PortCounts, Snapshot

Framing = Literal["tcp", "ipoib", "infiniband", "roce"]

_HEADER_BYTES: dict[Framing, int] = {"tcp": 66, "ipoib": 56, "infiniband": 24, "roce": 58}

VERBS_MTU_BYTES = (256, 512, 1024, 2048, 4096)  # payload sizes of a packet that InfiniBand defines, smallest first

ROCE_ROOM_BYTES = 96
"""Part of an interface's MTU that RoCE reserves: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4 (`iboe_get_mtu` in
Linux's include/rdma/ib_addr.h). An MTU of 1500 leaves 1024, an MTU of 9000 leaves 4096."""


def roce_mtu_bytes(interface_mtu_bytes: int | None) -> int | None:
    """Return the largest payload of a RoCE packet at an interface's MTU; None if the MTU is unknown or too small."""
    if interface_mtu_bytes is None:
        return None
    room = interface_mtu_bytes - ROCE_ROOM_BYTES
    return max((size for size in VERBS_MTU_BYTES if size <= room), default=None)


def without_headers(counted_bytes: int, packets: int, framing: Framing) -> int:
    """Return the counted bytes minus the headers of the counted packets."""
    return counted_bytes - packets * _HEADER_BYTES[framing]


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Sent and received bytes."""

    sent_bytes: int
    received_bytes: int

    def covers(self, need: Self) -> bool:
        return self.sent_bytes >= need.sent_bytes and self.received_bytes >= need.received_bytes

    def share_of(self, need: Self) -> float:
        """Return the counted fraction of `need`, in the direction with the smaller fraction."""
        both = ((self.sent_bytes, need.sent_bytes), (self.received_bytes, need.received_bytes))
        return min((have / want for have, want in both if want), default=0.0)

    def __add__(self, other: "ByteCounts") -> "ByteCounts":
        return ByteCounts(self.sent_bytes + other.sent_bytes, self.received_bytes + other.received_bytes)

    def __str__(self) -> str:
        return f"{self.sent_bytes:,} bytes sent and {self.received_bytes:,} received"


NOTHING = ByteCounts(0, 0)


def byte_counts(counts: Counts) -> ByteCounts | None:
    """Return the sent and received bytes; None if one of the two counters is unknown."""
    if counts.sent_bytes is None or counts.received_bytes is None:
        return None
    return ByteCounts(counts.sent_bytes, counts.received_bytes)


def covers(amount: ByteCounts | None, need: ByteCounts) -> bool:
    """Return True if the counted bytes are known and at least `need` in both directions."""
    return amount is not None and amount.covers(need)


def port_byte_counts(counted: Snapshot, port: PortCounts) -> ByteCounts | None:
    """Return an upper limit of the bytes that a port carried by verbs; None if its counters are unknown."""
    counts, total = port.counts, byte_counts(port.counts)
    if total is None:
        if counts.sent_packets is None or counts.received_packets is None:
            return None
        size = _mtu_bytes(counted, port) or VERBS_MTU_BYTES[-1]
        return ByteCounts(counts.sent_packets * size, counts.received_packets * size)
    for name in port.interfaces:
        interface = counted.interface(name)
        if interface is not None and interface.type == INFINIBAND:
            ip = byte_counts(interface.counts)
            if ip is None:
                return None
            total = ByteCounts(
                max(total.sent_bytes - ip.sent_bytes, 0), max(total.received_bytes - ip.received_bytes, 0)
            )
    return total


def _mtu_bytes(counted: Snapshot, port: PortCounts) -> int | None:
    """Return the largest payload of a RoCE packet; None for InfiniBand, for which /sys does not report it."""
    if port.link_layer != "Ethernet":
        return None
    found = [roce_mtu_bytes(one.mtu_bytes) for name in port.interfaces if (one := counted.interface(name))]
    return min((size for size in found if size), default=None)


def kind_of(interface: InterfaceCounts) -> Kind:
    """Return the kind of IP traffic over an interface: `ipoib` for InfiniBand, `tcp` for all other types."""
    if interface.type is None:
        return "unknown"
    return "ipoib" if interface.type == INFINIBAND else "tcp"


def describe_interface(interface: InterfaceCounts, need: ByteCounts, again_bytes: int = 0) -> str:
    """Describe an interface's counters; compare their payload with the exchanged and retransmitted (`again`) bytes."""
    loopback = interface.name == "lo" or interface.type == LOOPBACK
    infiniband = interface.type == INFINIBAND
    other = "Ethernet" if interface.type == ETHERNET else f"type {interface.type or 'unknown'}"
    kind = "loopback" if loopback else "IPoIB" if infiniband else other
    framing: Framing = "ipoib" if infiniband else "tcp"
    compared = _compared(interface.counts, need, framing, again_bytes)
    return f"{interface.name} ({kind}) counted {byte_counts(interface.counts)}{compared}"


def describe_port(counted: Snapshot, port: PortCounts, need: ByteCounts) -> str:
    """Describe the counters of an RDMA port."""
    soft = ", Soft-RoCE: functional only" if port.soft else ""
    name = f"{port.name} ({port.link_layer or 'link layer unknown'}{soft})"
    counts, amount = port.counts, port_byte_counts(counted, port)
    if amount is None:
        return f"the counters of {name} are missing, decreased, or reached their maximum"
    if counts.sent_bytes is None:
        size = _mtu_bytes(counted, port) or VERBS_MTU_BYTES[-1]
        packets = f"{counts.sent_packets:,} packets sent and {counts.received_packets:,} received"
        return f"{name} counted {packets}, of at most {size} bytes; {-(-need.sent_bytes // size):,} packets are needed"
    framing: Framing = "roce" if port.link_layer == "Ethernet" else "infiniband"
    if ByteCounts(counts.sent_bytes, counts.received_bytes or 0) != amount:
        return f"{name} counted {amount}, without IPoIB's bytes"
    return f"{name} counted {amount}{_compared(counts, need, framing)}"


def _compared(counts: Counts, need: ByteCounts, framing: Framing, again_bytes: int = 0) -> str:
    """Compare the counted payload, which includes traffic of this host's other processes, with the expected payload."""
    if not counts.sent_bytes or counts.sent_packets is None or not need.sent_bytes:
        return ""
    expected = f"{need.sent_bytes:,}" + f" and {again_bytes:,} retransmitted by TCP" * bool(again_bytes)
    payload = without_headers(counts.sent_bytes, counts.sent_packets, framing)
    deviation = f"{100 * (payload / (need.sent_bytes + again_bytes) - 1):+.1f} %"
    return f"; sent without headers: {payload:,} bytes, {deviation} relative to {expected}"
