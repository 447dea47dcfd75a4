"""What headers add to a payload, so that counted bytes can be compared with those that were exchanged.

| framing | of a packet's counted bytes, headers are | source |
|---|---|---|
| tcp | 66: Ethernet 14, IPv4 20, TCP 20, timestamps 12 | IEEE 802.3, RFC 791, RFC 9293, RFC 7323 (Linux's default) |
| ipoib | 56: encapsulation 4, IPv4 20, TCP 20, timestamps 12 | RFC 4391, section 6 |
| infiniband | 24: LRH 8, BTH 12, ICRC 4 | InfiniBand Architecture Specification, volume 1; the VCRC is not counted |
| roce | 58: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4 | the same, annex A17 (RoCE v2) |

Linux counts an interface's bytes with their Ethernet header, without preamble and checksum; on `lo` too. Where the
kernel hands whole trains of segments to a driver in software (GSO), what it counts as one packet has one header: so
headers are taken from the packets that were counted, and from the MTU only where none were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Framing = Literal["tcp", "ipoib", "infiniband", "roce"]


@dataclass(frozen=True, slots=True)
class _Headers:
    """`packet_bytes` of each packet; `inside_bytes` of them count against the MTU."""

    packet_bytes: int
    inside_bytes: int


_HEADERS: dict[Framing, _Headers] = {
    "tcp": _Headers(66, 52),
    "ipoib": _Headers(56, 52),
    "infiniband": _Headers(24, 0),  # the MTU of verbs is that of the payload
    "roce": _Headers(58, 0),
}

VERBS_MTU_BYTES = (256, 512, 1024, 2048, 4096)
"""The payloads of a packet that InfiniBand knows; the last is the largest there is."""

ROCE_ROOM_BYTES = 96
"""What RoCE keeps free of an interface's MTU: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4 (`iboe_get_mtu` in
Linux's include/rdma/ib_addr.h). Of 1500 it makes 1024, of 9000 it makes 4096."""


def roce_mtu_bytes(interface_mtu_bytes: int | None) -> int | None:
    """The payload of a packet of RoCE over an interface; None where its MTU is not known, or too small."""
    if interface_mtu_bytes is None:
        return None
    room = interface_mtu_bytes - ROCE_ROOM_BYTES
    return max((size for size in VERBS_MTU_BYTES if size <= room), default=None)


def wire_bytes(payload_bytes: int, framing: Framing, mtu_bytes: int | None) -> int | None:
    """What a payload should count as, in full packets; None where the MTU is not known.

    Acknowledgements are not in it: of TCP they count on the other direction.
    """
    if mtu_bytes is None:
        return None
    headers = _HEADERS[framing]
    segment = mtu_bytes - headers.inside_bytes
    return payload_bytes + -(-payload_bytes // segment) * headers.packet_bytes if segment > 0 else None


def without_headers(counted_bytes: int, packets: int, framing: Framing) -> int:
    """The payload of counted bytes in counted packets."""
    return counted_bytes - packets * _HEADERS[framing].packet_bytes
