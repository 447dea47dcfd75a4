"""Transport evidence of a rank: the kernel's counters before and after, and the report of its channel library.

    RDMA ports      /sys/class/infiniband/D/ports/N/counters/port_{xmit,rcv}_{data,packets}; data is in words of 4
                    octets (Documentation/ABI/stable/sysfs-class-infiniband). Soft-RoCE has no such counters, but
                    hw_counters/sent_pkts and rcvd_pkts (Linux's drivers/infiniband/sw/rxe/rxe_hw_counters.c)
    interfaces      /proc/self/net/dev: always of this process's network namespace, unlike /sys
    connections     getsockopt(TCP_INFO) of this process's TCP sockets, whichever library opened them

A rank takes a `Snapshot` before its channel is opened, and calls `record` before the channel is closed, because the
connections' counters disappear with them. `TransportEvidence.from_attrs` reads the recorded instant.

A decreased counter has wrapped if the increase is less than half of its range; otherwise it was reset and is unknown. A
counter at its maximum is unknown, because 32-bit counters of InfiniBand stop there. A counter that is missing in one
reading, or belongs to a removed device, is None: unknown, never 0.
"""

import dataclasses
import os
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from dlobd.fields import decoded, plain
from dlobd.network import devices
from dlobd.network.channels.base import Traffic
from dlobd.network.devices import ROOT, listed, read_number, read_text
from dlobd.network.interfaces import interfaces
from dlobd.tracing.clock import host_name

WORD_BYTES = 4  # unit of port_xmit_data

BYTES_RECEIVED, BYTES_SENT = 128, 200
"""Offsets in `struct tcp_info` of Linux's include/uapi/linux/tcp.h, which only grows at its end: bytes_received (Linux
4.1), bytes_sent and bytes_retrans after it (Linux 4.19)."""

TCP_INFO_BYTES = 216
"""Size of the part of the structure that is read; an older kernel returns less and does not count sent bytes."""

MAPPED = "::ffff:"  # prefix of an IPv4 address of an IPv6 socket (RFC 4291, 2.5.5.2), such as gRPC's


@dataclass(frozen=True, slots=True)
class TcpSocket:
    """TCP connection with `host:port` of both ends and the payload that it has carried."""

    local: str
    peer: str
    sent_bytes: int
    received_bytes: int
    again_bytes: int = 0  # retransmitted bytes; not part of `sent_bytes`, but counted by interfaces


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of a port or an interface, or the difference of two readings. None is unknown."""

    sent_bytes: int | None = None
    received_bytes: int | None = None
    sent_packets: int | None = None
    received_packets: int | None = None

    def since(self, before: "Counts", unit_bytes: int = 1) -> "Counts":
        """Return the difference to an earlier reading; the bytes are counted in units of `unit_bytes`."""
        return Counts(
            counted(before.sent_bytes, self.sent_bytes, unit_bytes),
            counted(before.received_bytes, self.received_bytes, unit_bytes),
            counted(before.sent_packets, self.sent_packets),
            counted(before.received_packets, self.received_packets),
        )


@dataclass(frozen=True, slots=True)
class PortCounts:
    """Counters of a port of an RDMA device, `mlx5_0:1`."""

    name: str
    soft: bool | None
    link_layer: str | None
    interfaces: tuple[str, ...]  # interfaces of the same hardware, which provide the port's GIDs or run IPoIB on it
    counts: Counts


@dataclass(frozen=True, slots=True)
class InterfaceCounts:
    """Counters of an interface; see `dlobd.network.interfaces.Interface`."""

    name: str
    type: int | None
    mtu_bytes: int | None
    addresses: tuple[str, ...]
    counts: Counts


Part = TypeVar("Part", PortCounts, InterfaceCounts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters of a host and network namespace, read at `at_ns` on the host's monotonic clock."""

    host: str
    namespace: str
    at_ns: int
    ports: tuple[PortCounts, ...]
    interfaces: tuple[InterfaceCounts, ...]
    sockets: tuple[TcpSocket, ...] | None = None  # connections of this process; None if the kernel does not report them

    @classmethod
    def read(cls, root: Path = ROOT) -> Self:
        """Read all counters in a few milliseconds, after the counters that a device caches have expired (10 ms)."""
        found = devices.devices(root)
        _let_caches_expire(root)
        here = root == ROOT
        return cls(
            host_name(),
            _namespace(root),
            time.monotonic_ns(),
            tuple(_port(root, device, port) for device in found for port in device.ports),
            _interfaces(root, None if here else {}),
            own_sockets() if here else None,
        )

    def interface(self, name: str) -> InterfaceCounts | None:
        return next((one for one in self.interfaces if one.name == name), None)

    def home(self, address: str) -> str | None:
        return next((one.name for one in self.interfaces if address in one.addresses), None)

    def since(self, before: Self) -> Self:
        """Return the increases since an earlier snapshot. Counters that only one snapshot has are unknown."""
        return dataclasses.replace(
            self,
            ports=_differences(before.ports, self.ports, WORD_BYTES),
            interfaces=_differences(before.interfaces, self.interfaces, 1),
            sockets=None if before.sockets is None or self.sockets is None else carried(before.sockets, self.sockets),
        )


@dataclass(frozen=True, slots=True)
class TransportEvidence:
    """Transport evidence of a rank or a parameter server."""

    rank: int  # number of the rank or of the server
    library: str  # the channel library: sockets, ucx, grpc, mpi, tensorflow
    lanes: tuple[str, ...]  # TRANSPORT/DEVICE, as UCX writes them: rc_mlx5/mlx5_0:1, sysv/memory
    traffic: Traffic | None  # traffic of the rank's channel; None if the library does not count it
    addresses: tuple[str, ...]  # addresses at which the rank's channel listened
    before: Snapshot
    after: Snapshot
    server: bool = False

    @property
    def who(self) -> str:
        return f"ps-{self.rank}" if self.server else f"rank {self.rank}"

    @property
    def place(self) -> tuple[str, str]:
        return self.after.host, self.after.namespace

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Self:
        """Parse the result of `record`. Raises KeyError or TypeError if its form is invalid."""
        return decoded(cls, attrs)


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
    """Return the attributes of the instant `transport`. By default `after` is read now."""
    evidence = TransportEvidence(
        rank, library, tuple(lanes), traffic, tuple(addresses), before, after or Snapshot.read(), server
    )
    return dict(plain(evidence))


def counted(before: int | None, after: int | None, unit: int = 1) -> int | None:
    """Return the increase of a counter that counts in steps of `unit` and may have wrapped once at 32 or 64 bits."""
    if before is None or after is None or after in (unit * ((1 << 32) - 1), unit * ((1 << 64) - 1)):
        return None
    if after >= before:
        return after - before
    for bits in (32, 64):
        width = unit << bits
        if before < width:
            return after - before + width if after - before + width <= width // 2 else None
    return None


def _differences(before: Sequence[Part], after: Sequence[Part], unit_bytes: int) -> tuple[Part, ...]:
    earlier, now = ({one.name: one for one in some} for some in (before, after))
    return tuple(
        dataclasses.replace(
            one, counts=one.counts.since(earlier[name].counts, unit_bytes) if name in now.keys() & earlier else Counts()
        )
        for name, one in (earlier | now).items()
    )


# ---- ports and interfaces


def _port(root: Path, device: devices.Device, port: devices.Port) -> PortCounts:
    place = root / "sys/class/infiniband" / device.name / "ports" / str(port.number)
    return PortCounts(
        f"{device.name}:{port.number}",
        device.soft,
        port.link_layer,
        tuple(sorted(_interfaces_of(root, device, port))),
        Counts(
            _words(place / "counters/port_xmit_data"),
            _words(place / "counters/port_rcv_data"),
            _either(place / "counters/port_xmit_packets", place / "hw_counters/sent_pkts"),
            _either(place / "counters/port_rcv_packets", place / "hw_counters/rcvd_pkts"),
        ),
    )


def _interfaces_of(root: Path, device: devices.Device, port: devices.Port) -> set[str]:
    """Return a port's interfaces: for RoCE those of its GIDs, for IPoIB those of its hardware and dev_port (from 0)."""
    found = {gid.interface for gid in port.gids if gid.interface} | ({device.parent} if device.parent else set())
    if found or device.bus is None:
        return found
    return {
        path.name
        for path in listed(root / "sys/class/net")
        if devices.bus_of(path) == device.bus and read_number(path / "dev_port") in (None, port.number - 1)
    }


def _words(path: Path) -> int | None:
    words = read_number(path)
    return None if words is None else words * WORD_BYTES


def _either(first: Path, second: Path) -> int | None:
    number = read_number(first)
    return read_number(second) if number is None else number


def _let_caches_expire(root: Path) -> None:
    """Wait until the kernel's cache of hw_counters, which lives for `lifespan` milliseconds, has expired."""
    lifespans = [read_number(path) or 0 for path in root.glob("sys/class/infiniband/*/ports/*/hw_counters/lifespan")]
    if lifespans:
        time.sleep(max(lifespans) / 1e3)


def _interfaces(root: Path, addresses: Mapping[str, Sequence[str]] | None) -> tuple[InterfaceCounts, ...]:
    counts_by_name = _proc_net_dev(root / "proc/self/net/dev")
    known = {one.name: one for one in interfaces(root / "sys/class/net", addresses)}
    if not known.keys() >= counts_by_name.keys():
        known = {}  # /sys was mounted in another network namespace and shows its interfaces
    return tuple(
        InterfaceCounts(name, known[name].type, known[name].mtu_bytes, known[name].addresses, counts)
        if name in known
        else InterfaceCounts(name, None, None, (), counts)
        for name, counts in counts_by_name.items()
    )


def _proc_net_dev(path: Path) -> dict[str, Counts]:
    """Parse lines of a name and 16 numbers (proc(5)): received counters begin at the first, sent at the ninth."""
    counts = {}
    for line in (read_text(path) or "").splitlines():
        if match := re.fullmatch(r"\s*(\S+):\s*((?:\d+\s*){16,})", line):
            numbers = [int(word) for word in match[2].split()]
            counts[match[1]] = Counts(numbers[8], numbers[0], numbers[9], numbers[1])
    return counts


def _namespace(root: Path) -> str:
    """Return boot ID and network namespace, because two machines may have the same host name."""
    try:
        return f"{read_text(root / 'proc/sys/kernel/random/boot_id')}/{os.readlink(root / 'proc/self/ns/net')}"
    except OSError:
        return "unknown"


# ---- TCP connections


def tcp_socket(fd: int) -> TcpSocket | None:
    """Return the connection of a descriptor; None unless it is a connected TCP socket whose bytes the kernel counts."""
    if socket.getdefaulttimeout() is not None:
        return None  # with a default timeout, Python would make the library's socket non-blocking
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
            ends = _end_name(one.getsockname()), _end_name(one.getpeername())
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except OSError:  # the descriptor was closed concurrently, is no socket, or is not connected
        return None
    if len(info) < TCP_INFO_BYTES:
        return None
    sent, again = struct.unpack_from("=QQ", info, BYTES_SENT)
    (received,) = struct.unpack_from("=Q", info, BYTES_RECEIVED)
    return TcpSocket(*ends, sent - again, received, again)


def own_sockets() -> tuple[TcpSocket, ...] | None:
    """Return all TCP connections of this process; None if they cannot be listed."""
    if socket.getdefaulttimeout() is not None:
        return None
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return None
    return tuple(one for fd in descriptors if (one := tcp_socket(fd)))


def carried(before: tuple[TcpSocket, ...], after: tuple[TcpSocket, ...]) -> tuple[TcpSocket, ...]:
    """Return the traffic of each open connection between two readings; a new connection counts from 0."""
    earlier = {(one.local, one.peer): one for one in before}
    differences = []
    for one in after:
        was = earlier.get((one.local, one.peer))
        if was is None or one.sent_bytes < was.sent_bytes or one.received_bytes < was.received_bytes:
            was = TcpSocket("", "", 0, 0)  # a new connection between the same ports
        names = ("sent_bytes", "received_bytes", "again_bytes")
        change = {name: getattr(one, name) - getattr(was, name) for name in names}
        differences.append(dataclasses.replace(one, **change))
    return tuple(differences)


def host_of(address: str) -> str:
    """Return the host of `host:port`."""
    return address.rpartition(":")[0]


def _end_name(address: tuple[str, int]) -> str:
    return f"{address[0].removeprefix(MAPPED)}:{address[1]}"
