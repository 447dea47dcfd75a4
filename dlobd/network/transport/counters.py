"""Snapshots of the kernel's counters, before and after, and what they counted between.

    RDMA ports      /sys/class/infiniband/D/ports/N/counters/port_{xmit,rcv}_{data,packets}; data is in words of 4
                    octets (Documentation/ABI/stable/sysfs-class-infiniband). Soft-RoCE has no such counters, but
                    hw_counters/sent_pkts and rcvd_pkts (Linux's drivers/infiniband/sw/rxe/rxe_hw_counters.c)
    interfaces      /proc/self/net/dev: of this process's own network namespace, whatever /sys was mounted from
    connections     `tcp_info`: of this process

A counter that wrapped is told from one that was reset by how far it came: by less than half of its width. One that
stands at its largest value says nothing, as InfiniBand's of 32 bits stop there. What is missing on one side, and what a
device counted that is gone, is None: unknown, never 0.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dlobd.network import devices
from dlobd.network.devices import ROOT, read_number, read_text
from dlobd.network.interfaces import interfaces
from dlobd.network.transport import tcp_info
from dlobd.network.transport.tcp_info import TcpSocket
from dlobd.tracing.clock import host_name

WORD_BYTES = 4
"""What port_xmit_data counts in."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one port or interface: what the counters say, or in a difference what they counted. None: unknown."""

    sent_bytes: int | None = None
    received_bytes: int | None = None
    sent_packets: int | None = None
    received_packets: int | None = None

    def since(self, before: Counts, unit_bytes: int = 1) -> Counts:
        """What was counted since `before`; bytes are counted in units of so many."""
        return Counts(
            counted(before.sent_bytes, self.sent_bytes, unit_bytes),
            counted(before.received_bytes, self.received_bytes, unit_bytes),
            counted(before.sent_packets, self.sent_packets),
            counted(before.received_packets, self.received_packets),
        )


@dataclass(frozen=True, slots=True)
class PortCounts:
    """One port of an RDMA device, `mlx5_0:1`.

    interfaces: those of the same hardware: whose GIDs the port has, or IPoIB on it.
    """

    name: str
    soft: bool | None
    link_layer: str | None
    interfaces: tuple[str, ...]
    counts: Counts


@dataclass(frozen=True, slots=True)
class InterfaceCounts:
    """One interface; see `dlobd.network.interfaces.Interface`."""

    name: str
    type: int | None
    mtu_bytes: int | None
    addresses: tuple[str, ...]
    counts: Counts


Part = TypeVar("Part", PortCounts, InterfaceCounts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the counters of a host and network namespace say at `at_ns`, of its monotonic clock.

    sockets: the TCP connections of this process; None where the kernel does not say.
    """

    host: str
    namespace: str
    at_ns: int
    ports: tuple[PortCounts, ...]
    interfaces: tuple[InterfaceCounts, ...]
    sockets: tuple[TcpSocket, ...] | None = None

    @classmethod
    def read(cls, root: Path = ROOT) -> Snapshot:
        """Now. It takes some milliseconds, and 10 more where a device keeps its counters for so long."""
        every = devices.devices(root)
        _let_expire(root)
        here = root == ROOT
        return cls(
            host_name(),
            _namespace(root),
            time.monotonic_ns(),
            tuple(_port(root, device, port) for device in every for port in device.ports),
            _interfaces(root, None if here else {}),
            tcp_info.own_sockets() if here else None,
        )

    def interface(self, name: str) -> InterfaceCounts | None:
        """The interface of that name."""
        return next((one for one in self.interfaces if one.name == name), None)

    def home(self, address: str) -> str | None:
        """The interface that has an address of IPv4."""
        return next((one.name for one in self.interfaces if address in one.addresses), None)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Snapshot:
        """The snapshot of a record.

        Raises:
            KeyError, TypeError: it is none.
        """
        sockets = found["sockets"]
        return cls(
            found["host"],
            found["namespace"],
            found["at_ns"],
            tuple(
                PortCounts(**{**one, "interfaces": tuple(one["interfaces"]), "counts": Counts(**one["counts"])})
                for one in found["ports"]
            ),
            tuple(
                InterfaceCounts(**{**one, "addresses": tuple(one["addresses"]), "counts": Counts(**one["counts"])})
                for one in found["interfaces"]
            ),
            None if sockets is None else tuple(TcpSocket(**one) for one in sockets),
        )

    def since(self, before: Snapshot) -> Snapshot:
        """The same with what was counted since `before`; what was there at one of both times only is unknown."""
        return dataclasses.replace(
            self,
            ports=_differences(before.ports, self.ports, WORD_BYTES),
            interfaces=_differences(before.interfaces, self.interfaces, 1),
            sockets=None
            if before.sockets is None or self.sockets is None
            else tcp_info.carried(before.sockets, self.sockets),
        )


def counted(before: int | None, after: int | None, unit: int = 1) -> int | None:
    """What a counter counted, in steps of `unit`; 32 or 64 bits of it may have wrapped once."""
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
    """What each part of a host counted; those that came or went are unknown."""
    earlier, now = ({one.name: one for one in some} for some in (before, after))
    return tuple(
        dataclasses.replace(
            one, counts=one.counts.since(earlier[name].counts, unit_bytes) if name in now.keys() & earlier else Counts()
        )
        for name, one in (earlier | now).items()
    )


# ---- reading


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
    """Those of RoCE by its GIDs; IPoIB has the same hardware, and a dev_port that counts from 0."""
    found = {gid.interface for gid in port.gids if gid.interface} | ({device.parent} if device.parent else set())
    if found or device.bus is None:
        return found
    return {
        path.name
        for path in _listed(root / "sys/class/net")
        if devices.bus_of(path) == device.bus and read_number(path / "dev_port") in (None, port.number - 1)
    }


def _words(path: Path) -> int | None:
    words = read_number(path)
    return None if words is None else words * WORD_BYTES


def _either(first: Path, second: Path) -> int | None:
    found = read_number(first)
    return read_number(second) if found is None else found


def _let_expire(root: Path) -> None:
    """Waits until no counter is told that was read before: the kernel keeps hw_counters for `lifespan` milliseconds."""
    kept = [read_number(path) or 0 for path in root.glob("sys/class/infiniband/*/ports/*/hw_counters/lifespan")]
    if kept:
        time.sleep(max(kept) / 1e3)


def _interfaces(root: Path, addresses: Mapping[str, Sequence[str]] | None) -> tuple[InterfaceCounts, ...]:
    found = _proc_net_dev(root / "proc/self/net/dev")
    known = {one.name: one for one in interfaces(root / "sys/class/net", addresses)}
    if not known.keys() >= found.keys():
        known = {}  # /sys was mounted in another network namespace: it tells of other interfaces
    return tuple(
        InterfaceCounts(name, known[name].type, known[name].mtu_bytes, known[name].addresses, counts)
        if name in known
        else InterfaceCounts(name, None, None, (), counts)
        for name, counts in found.items()
    )


def _proc_net_dev(path: Path) -> dict[str, Counts]:
    """`name: ` and 16 numbers a line: received bytes and packets first, sent ones from the 9th on (proc(5))."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        match = re.fullmatch(r"\s*(\S+):\s*((?:\d+\s*){16,})", line)
        if match:
            numbers = [int(word) for word in match[2].split()]
            found[match[1]] = Counts(numbers[8], numbers[0], numbers[9], numbers[1])
    return found


def _namespace(root: Path) -> str:
    """Of which machine, by its boot, and which network namespace of it: names of hosts may be equal."""
    try:
        return f"{read_text(root / 'proc/sys/kernel/random/boot_id')}/{os.readlink(root / 'proc/self/ns/net')}"
    except OSError:
        return "unknown"


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
