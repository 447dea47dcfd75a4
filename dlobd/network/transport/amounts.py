"""What counters say in bytes of both directions, and in words."""

from __future__ import annotations

from dataclasses import dataclass

from dlobd.network.channels.base import Kind
from dlobd.network.interfaces import ETHERNET, INFINIBAND, LOOPBACK
from dlobd.network.transport import headers
from dlobd.network.transport.counters import Counts, InterfaceCounts, PortCounts, Snapshot


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes of both directions."""

    sent_bytes: int
    received_bytes: int

    def covers(self, need: Amount) -> bool:
        """Whether it is at least as much, in both directions."""
        return self.sent_bytes >= need.sent_bytes and self.received_bytes >= need.received_bytes

    def share_of(self, need: Amount) -> float:
        """Of the direction of which it is the smaller share; 1 is all of it."""
        both = ((self.sent_bytes, need.sent_bytes), (self.received_bytes, need.received_bytes))
        return min((have / want for have, want in both if want), default=0.0)

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.sent_bytes + other.sent_bytes, self.received_bytes + other.received_bytes)

    def __str__(self) -> str:
        return f"{self.sent_bytes:,} bytes sent and {self.received_bytes:,} received"


NOTHING = Amount(0, 0)


def amount_of(counts: Counts) -> Amount | None:
    """Of counters of bytes; None where they do not tell."""
    if counts.sent_bytes is None or counts.received_bytes is None:
        return None
    return Amount(counts.sent_bytes, counts.received_bytes)


def carried_by(amount: Amount | None, need: Amount) -> bool:
    """Whether a counter is known to have moved by as much as was needed."""
    return amount is not None and amount.covers(need)


def port_amount(counted: Snapshot, port: PortCounts) -> Amount | None:
    """The most that a port can have carried by verbs; None where its counters do not tell."""
    counts, total = port.counts, amount_of(port.counts)
    if total is None:
        if counts.sent_packets is None or counts.received_packets is None:
            return None
        size = _mtu_bytes(counted, port) or headers.VERBS_MTU_BYTES[-1]
        return Amount(counts.sent_packets * size, counts.received_packets * size)
    for name in port.interfaces:
        interface = counted.interface(name)
        if interface is not None and interface.type == INFINIBAND:
            ip = amount_of(interface.counts)
            if ip is None:
                return None
            total = Amount(max(total.sent_bytes - ip.sent_bytes, 0), max(total.received_bytes - ip.received_bytes, 0))
    return total


def _mtu_bytes(counted: Snapshot, port: PortCounts) -> int | None:
    """The payload of a packet of RoCE; of InfiniBand /sys does not say it."""
    if port.link_layer != "Ethernet":
        return None
    found = [headers.roce_mtu_bytes(one.mtu_bytes) for name in port.interfaces if (one := counted.interface(name))]
    return min((size for size in found if size), default=None)


def kind_of(interface: InterfaceCounts) -> Kind:
    """What IP over an interface is called; loopback is tcp, and is named beside it."""
    if interface.type is None:
        return "unknown"
    return "ipoib" if interface.type == INFINIBAND else "tcp"


def interface_words(interface: InterfaceCounts, need: Amount, again_bytes: int = 0) -> str:
    """What an interface counted, and its payload after headers against what was exchanged.

    Args:
        again_bytes: what TCP sent once more, beside that.
    """
    loopback = interface.name == "lo" or interface.type == LOOPBACK
    infiniband = interface.type == INFINIBAND
    other = "Ethernet" if interface.type == ETHERNET else f"type {interface.type or 'unknown'}"
    kind = "loopback" if loopback else "IPoIB" if infiniband else other
    framing: headers.Framing = "ipoib" if infiniband else "tcp"
    compared = _compared(interface.counts, need, framing, interface.mtu_bytes, again_bytes)
    return f"{interface.name} ({kind}) counted {amount_of(interface.counts)}{compared}"


def port_words(counted: Snapshot, port: PortCounts, need: Amount) -> str:
    """The same of an RDMA port."""
    soft = ", Soft-RoCE: functional only" if port.soft else ""
    name = f"{port.name} ({port.link_layer or 'link layer unknown'}{soft})"
    counts, amount, mtu_bytes = port.counts, port_amount(counted, port), _mtu_bytes(counted, port)
    if amount is None:
        return f"the counters of {name} are missing, went backwards, or stand at their end"
    if counts.sent_bytes is None:
        size = mtu_bytes or headers.VERBS_MTU_BYTES[-1]
        packets = f"{counts.sent_packets:,} packets sent and {counts.received_packets:,} received"
        return f"{name} counted {packets}, of at most {size} bytes; {-(-need.sent_bytes // size):,} sent are needed"
    framing: headers.Framing = "roce" if port.link_layer == "Ethernet" else "infiniband"
    if Amount(counts.sent_bytes, counts.received_bytes or 0) != amount:
        return f"{name} counted {amount} that were not IPoIB's"
    return f"{name} counted {amount}{_compared(counts, need, framing, mtu_bytes)}"


def _compared(
    counts: Counts, need: Amount, framing: headers.Framing, mtu_bytes: int | None, again_bytes: int = 0
) -> str:
    """What was sent without headers, against what was expected; what others sent on this host is in it."""
    if not counts.sent_bytes or not need.sent_bytes:
        return ""
    payload_bytes = need.sent_bytes + again_bytes
    expected = f"{need.sent_bytes:,}" + f" and {again_bytes:,} that TCP sent again" * bool(again_bytes)
    if counts.sent_packets is not None:
        payload = headers.without_headers(counts.sent_bytes, counts.sent_packets, framing)
        return f"; sent without headers {payload:,}, {payload / payload_bytes - 1:+.1%} against {expected}"
    wire_bytes = headers.wire_bytes(payload_bytes, framing, mtu_bytes)
    if wire_bytes is None:
        return "; what headers add is unknown, as the MTU is"
    return f"; {wire_bytes:,} sent were expected with headers, {counts.sent_bytes / wire_bytes - 1:+.1%}"
