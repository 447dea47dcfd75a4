"""How many bytes each TCP connection of this process has carried, by the kernel: whichever library opened it.

Read by getsockopt(TCP_INFO). Offsets are those of `struct tcp_info` in Linux's include/uapi/linux/tcp.h, which only
grows at its end: bytes_received at 128 (Linux 4.1), bytes_sent at 200 and bytes_retrans after it (Linux 4.19).
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

BYTES_RECEIVED, BYTES_SENT = 128, 200
TCP_INFO_BYTES = 216
"""As much of the structure as is read; a kernel that gives less does not say how much was sent."""

MAPPED = "::ffff:"
"""How a socket of IPv6 names an address of IPv4 (RFC 4291, 2.5.5.2); gRPC's are such."""


@dataclass(frozen=True, slots=True)
class TcpSocket:
    """One connection, `host:port` of both ends, and the payload that it has carried.

    again_bytes: sent once more, as they were lost or late: not in `sent_bytes`, and counted by interfaces.
    """

    local: str
    peer: str
    sent_bytes: int
    received_bytes: int
    again_bytes: int = 0


def tcp_socket(fd: int) -> TcpSocket | None:
    """The connection of a descriptor; None where it is no connected TCP socket, or the kernel does not say."""
    if socket.getdefaulttimeout() is not None:
        return None  # Python would make the library's own socket non-blocking
    try:
        copy = os.dup(fd)
        try:
            one = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            raise
        with one:
            if one.type != socket.SOCK_STREAM or one.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            ends = _written(one.getsockname()), _written(one.getpeername())
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except OSError:  # closed meanwhile, no socket, or not connected
        return None
    if len(info) < TCP_INFO_BYTES:
        return None
    sent, again = struct.unpack_from("=QQ", info, BYTES_SENT)
    (received,) = struct.unpack_from("=Q", info, BYTES_RECEIVED)
    return TcpSocket(*ends, sent - again, received, again)


def own_sockets() -> tuple[TcpSocket, ...] | None:
    """All TCP connections of this process; None where that cannot be told."""
    if socket.getdefaulttimeout() is not None:
        return None
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return None
    return tuple(one for fd in descriptors if (one := tcp_socket(fd)))


def carried(before: tuple[TcpSocket, ...], after: tuple[TcpSocket, ...]) -> tuple[TcpSocket, ...]:
    """What each connection carried between two readings; one that is new began at 0, one that is closed is not told."""
    earlier = {(one.local, one.peer): one for one in before}
    found = []
    for one in after:
        was = earlier.get((one.local, one.peer))
        if was is None or one.sent_bytes < was.sent_bytes or one.received_bytes < was.received_bytes:
            was = TcpSocket("", "", 0, 0)  # another connection, between the same ports
        found.append(
            TcpSocket(
                one.local,
                one.peer,
                one.sent_bytes - was.sent_bytes,
                one.received_bytes - was.received_bytes,
                one.again_bytes - was.again_bytes,
            )
        )
    return tuple(found)


def host_of(address: str) -> str:
    """The host of `host:port`."""
    return address.rpartition(":")[0]


def _written(address: tuple[str, int]) -> str:
    return f"{address[0].removeprefix(MAPPED)}:{address[1]}"
