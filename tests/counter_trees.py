"""Constructed hosts: trees of /sys and /proc whose counters move, and ranks that read them before and after.

The layout of RDMA devices is that of Linux's Documentation/ABI/stable/sysfs-class-infiniband; that of Soft-RoCE was
copied from a machine that has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlobd.network.channels.base import Kind, Traffic
from dlobd.network.verdict.evidence import Snapshot, TcpSocket, TransportEvidence, record

MB = 1_000_000
BYTES = 100 * MB
"""What each rank sends and receives."""

PCI = "sys/devices/pci0000:00/0000:17:00.0"
RC, TCP = "rc_mlx5/mlx5_0:1", "tcp/eth0"
"""Lanes, as UCX names them."""

GID = "fe80:0000:0000:0000:0ac0:ebff:fe23:1122"


def put(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@dataclass
class Host:
    """A host; `read` takes a rank's snapshot."""

    root: Path
    name: str = "host-a"
    addresses: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, list[int]] = field(default_factory=dict)  # interface: received, packets, sent, packets

    def interface(self, name: str, address: str = "", kind: int = 1, mtu: int = 1500, at: int = 5_000) -> None:
        """Add an interface; on real hardware its `device` link equals that of an RDMA device."""
        place = self.root / "sys/class/net" / name
        put(place / "type", kind)
        put(place / "mtu", mtu)
        if kind == 32:
            (place / "device").symlink_to(self.root / PCI)
            put(place / "dev_port", 0)
        self.addresses[name] = address
        self.numbers[name] = [at, 10, at, 10]

    def device(
        self, name: str, layer: str = "InfiniBand", interface: str = "", soft: bool = False, at: int | None = 7_000
    ) -> None:
        """Add a device with one port, whose counters stand at `at`; None: it has none."""
        place = self.root / (f"sys/devices/virtual/infiniband/{name}" if soft else f"{PCI}/infiniband/{name}")
        port = place / "ports/1"
        put(port / "state", "4: ACTIVE")
        put(port / "phys_state", "5: LinkUp")
        put(port / "rate", "10 Gb/sec (1X FDR10)" if soft else "100 Gb/sec (4X EDR)")
        put(port / "link_layer", layer)
        put(port / "gids/0", GID)
        put(port / "gids/1", "0000:0000:0000:0000:0000:0000:0000:0000")
        if interface:
            put(port / "gid_attrs/types/0", "RoCE v2")
            put(port / "gid_attrs/ndevs/0", interface)
        if soft:
            put(place / "parent", interface)
        else:
            put(place / "fw_ver", "20.31.1014")
            (self.root / PCI / "driver").mkdir(parents=True, exist_ok=True)
            (place / "device").symlink_to(self.root / PCI)
        (self.root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
        (self.root / "sys/class/infiniband" / name).symlink_to(place)
        if at is not None:
            self.set_port(name, at)

    def set_port(self, name: str, at: int) -> None:
        """Set all counters of a port: words of 4 octets, or packets of a software device."""
        port = self.root / "sys/class/infiniband" / name / "ports/1"
        if (self.root / "sys/class/infiniband" / name / "parent").exists():
            put(port / "hw_counters/sent_pkts", at)
            put(port / "hw_counters/rcvd_pkts", at)
        else:
            put(port / "counters/port_xmit_data", at)
            put(port / "counters/port_rcv_data", at)

    def move(self, interface: str, size: int = BYTES, packet: int = 1448) -> None:
        """Let an interface carry bytes of TCP each way, with headers."""
        received, packets_in, sent, packets_out = self.numbers[interface]
        packets = -(-size // packet)
        wire = size + packets * 66
        self.numbers[interface] = [received + wire, packets_in + packets, sent + wire, packets_out + packets]

    def read(self, sockets: Sequence[TcpSocket] | None = ()) -> Snapshot:
        """Take a rank's snapshot with its TCP connections; None: they are unknown."""
        lines = [f"{name}: {a} {b} 0 0 0 0 0 0 {c} {d} 0 0 0 0 0 0" for name, (a, b, c, d) in self.numbers.items()]
        head = "Inter-|   Receive | Transmit\n face |bytes packets |bytes packets"
        put(self.root / "proc/self/net/dev", "\n".join((head, *lines)))
        seen = Snapshot.read(self.root)
        interfaces = tuple(
            dataclasses.replace(one, addresses=(self.addresses[one.name],) if self.addresses.get(one.name) else ())
            for one in seen.interfaces
        )
        return dataclasses.replace(
            seen, host=self.name, interfaces=interfaces, sockets=None if sockets is None else tuple(sockets)
        )


def traffic(kind: Kind, size: int = BYTES) -> Traffic:
    return Traffic(kind, "", 10, size, 10, size, 0, 0)


def seen(
    rank: int,
    before: Snapshot,
    after: Snapshot,
    lanes: str = "",
    kind: Kind = "unknown",
    library: str = "ucx",
    addresses: Sequence[str] = (),
) -> TransportEvidence:
    """Return a rank's evidence, parsed from its record."""
    attrs = record(rank, library, before, lanes=lanes.split(), traffic=traffic(kind), addresses=addresses, after=after)
    return TransportEvidence.from_attrs(attrs)


def connected(a: str, b: str, share: float = 1.0) -> tuple[list[TcpSocket], list[TcpSocket]]:
    """Return both ends of a connection that carried a share of the bytes each way."""
    size = int(BYTES * share)
    return [TcpSocket(f"{a}:4711", f"{b}:50000", size, size)], [TcpSocket(f"{b}:50000", f"{a}:4711", size, size)]


@dataclass(frozen=True)
class Case:
    """Requested channel, evidence of the ranks, and expected verdict."""

    name: str
    asked: str
    ranks: Callable[[Path], list[TransportEvidence]]
    kind: Kind
    agrees: bool | None
    device: str = ""
    interface: str = ""
    soft: bool = False


def _pair(tmp: Path) -> tuple[Host, Host]:
    hosts = Host(tmp / "a", "host-a"), Host(tmp / "b", "host-b")
    for number, host in enumerate(hosts, 1):
        host.interface("lo", "127.0.0.1", 772, 65536)
        host.interface("eth0", f"10.0.0.{number}")
    return hosts


def _run(
    hosts: tuple[Host, Host],
    move: Callable[[Host], object],
    lanes: str,
    share: float | None = 0.0,
    kind: Kind = "unknown",
    net: str = "10.0.0",
) -> list[TransportEvidence]:
    """One rank per host, whose counters `move` moves; TCP connections carry `share` of the bytes (None: unknown)."""
    before = [host.read(() if share is not None else None) for host in hosts]
    for host in hosts:
        move(host)
    ends: Sequence[Sequence[TcpSocket] | None] = (None, None)
    if share is not None:
        ends = connected(f"{net}.1", f"{net}.2", share) if share else ((), ())
    return [
        seen(rank, before[rank], host.read(ends[rank]), lanes, kind, addresses=[f"ucx:{net}.{rank + 1}:4711"])
        for rank, host in enumerate(hosts)
    ]


def _infiniband(tmp: Path, at: int | None = 7_000) -> tuple[Host, Host]:
    hosts = _pair(tmp)
    for number, host in enumerate(hosts, 1):
        host.interface("ib0", f"10.1.0.{number}", 32, 2044)
        host.device("mlx5_0", at=at)
    return hosts


def _roce(tmp: Path, soft: bool = False) -> tuple[Host, Host]:
    hosts = _pair(tmp)
    for host in hosts:
        host.device("rxe0" if soft else "mlx5_0", "Ethernet", "eth0", soft)
    return hosts


def _moved(at: int = 7_000, name: str = "mlx5_0", size: int = BYTES) -> Callable[[Host], None]:
    """Move an InfiniBand port by the bytes with 3 % of headers; a 32-bit counter wraps."""
    words = size * 103 // 100 // 4
    return lambda host: host.set_port(name, (at + words) % 2**32)


def _soft(host: Host) -> None:
    host.set_port("rxe0", 7_000 + -(-BYTES // 1024))
    host.move("eth0", BYTES, 1024)


def _mixed_hosts(tmp: Path) -> list[TransportEvidence]:
    first, second = _infiniband(tmp)
    third = Host(tmp / "c", "host-c")
    third.interface("eth0", "10.0.0.3")
    hosts = (first, second, third)
    before = [host.read() for host in hosts]
    _moved()(first)
    second.move("eth0")
    third.move("eth0")
    ends = ((), *connected("10.0.0.2", "10.0.0.3"))
    return [seen(rank, before[rank], host.read(ends[rank]), TCP if rank else RC) for rank, host in enumerate(hosts)]


def _half(host: Host) -> None:
    _moved(size=BYTES // 2)(host)
    host.move("eth0", BYTES // 2)


def _gone(tmp: Path) -> list[TransportEvidence]:
    hosts = _infiniband(tmp)
    return _run(hosts, lambda host: (host.root / "sys/class/infiniband/mlx5_0").unlink(), "rc_mlx5/mlx5_0:1")


def _one_host(
    tmp: Path, move: Callable[[Host], object], lanes: str, kind: Kind, share: float | None = 0.0
) -> list[TransportEvidence]:
    """Two ranks of one host, at the address of its eth0."""
    host = _pair(tmp)[0]
    before = host.read(() if share is not None else None)
    move(host)
    ends: Sequence[Sequence[TcpSocket] | None] = (None, None)
    if share is not None:
        ends = connected("10.0.0.1", "10.0.0.1", share) if share else ((), ())
    return [
        seen(rank, before, host.read(ends[rank]), lanes, kind, "sockets", ["sockets:10.0.0.1:4711"]) for rank in (0, 1)
    ]


def _wrapped_interface(tmp: Path) -> list[TransportEvidence]:
    hosts = _pair(tmp)
    for host in hosts:
        host.interface("eth0", host.addresses["eth0"], at=2**64 - 1_000)

    def move(host: Host) -> None:
        host.move("eth0")
        host.numbers["eth0"] = [number % 2**64 for number in host.numbers["eth0"]]

    return _run(hosts, move, "tcp/eth0", 1.0)


def _other_address(tmp: Path) -> list[TransportEvidence]:
    hosts = _pair(tmp)
    for number, host in enumerate(hosts, 1):
        host.interface("eth1", f"10.2.0.{number}")
    return _run(hosts, lambda host: host.move("eth1"), "tcp/eth1", 1.0, net="10.2.0")


def _differing_names(tmp: Path) -> list[TransportEvidence]:
    """eth1 of the first host and eth0 of the second are on the network."""
    first, second = _pair(tmp)
    first.interface("eth1", "10.2.0.1")
    second.addresses["eth0"] = "10.2.0.2"
    second.interface("eth1", "10.9.0.2")
    move = {"host-a": "eth1", "host-b": "eth0"}
    return _run((first, second), lambda host: host.move(move[host.name]), "", 1.0, net="10.2.0")


def _one_outside(tmp: Path) -> list[TransportEvidence]:
    """The second host used an address of another network."""
    first, second = _pair(tmp)
    second.addresses["eth0"] = "10.3.0.2"
    before = [host.read() for host in (first, second)]
    for host in (first, second):
        host.move("eth0")
    ends = connected("10.0.0.1", "10.3.0.2")
    return [seen(rank, before[rank], host.read(ends[rank]), TCP) for rank, host in enumerate((first, second))]


def _foreign_sys(tmp: Path) -> list[TransportEvidence]:
    """/sys is of another network namespace: the interface's type is unknown."""
    hosts = _pair(tmp)
    for host in hosts:
        host.numbers["veth1"] = [5, 5, 5, 5]
        host.addresses["veth1"] = f"10.3.0.{1 if host.name == 'host-a' else 2}"
    return _run(hosts, lambda host: host.move("veth1"), "tcp/veth1", 1.0, net="10.3.0")


def _no_bytes(tmp: Path) -> list[TransportEvidence]:
    return [dataclasses.replace(one, traffic=traffic("tcp", 0)) for one in _one_host(tmp, lambda host: None, "", "tcp")]


CASES = [
    Case("InfiniBand by verbs", "rdma@mlx5_0:1", lambda t: _run(_infiniband(t), _moved(), RC), "verbs", True,
         "mlx5_0:1"),
    Case("RoCE v2 by hardware", "rdma@mlx5_0", lambda t: _run(_roce(t), _moved(), RC), "verbs", True, "mlx5_0:1",
         "eth0"),
    Case("Soft-RoCE", "rdma@rxe0:1", lambda t: _run(_roce(t, True), _soft, "rc_verbs/rxe0:1"), "verbs", True, "rxe0:1",
         "eth0", True),
    Case("Soft-RoCE, connections not known", "rdma@rxe0:1",
         lambda t: _run(_roce(t, True), _soft, "rc_verbs/rxe0:1", None), "verbs", True, "rxe0:1", "eth0", True),
    Case("TCP beside Soft-RoCE", "rdma@rxe0:1",
         lambda t: _run(_roce(t, True), lambda host: host.move("eth0"), "rc_verbs/rxe0:1", 1.0), "tcp", False, "",
         "eth0"),
    Case("silent fallback, and the library says so", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t), lambda host: host.move("eth0"), TCP, 1.0), "tcp", False, "", "eth0"),
    Case("silent fallback, and the library denies it", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t), lambda host: host.move("eth0"), RC, 1.0), "tcp", False, "", "eth0"),
    Case("silent fallback, connections not known", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t), lambda host: host.move("eth0"), RC, None), "tcp", False, "", "eth0"),
    Case("fallback to IPoIB: the port's counters move too", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t), lambda host: (_moved()(host), host.move("ib0", packet=1992)), RC, None,
                        net="10.1.0"), "ipoib", False, "", "ib0"),
    Case("no counter moved at all", "rdma@mlx5_0:1", lambda t: _run(_infiniband(t), lambda host: None, RC), "unknown",
         False),
    Case("hosts used different kinds", "rdma@mlx5_0:1", _mixed_hosts, "mixed", False, "mlx5_0:1", "eth0"),
    Case("half by a device, half by TCP", "rdma@mlx5_0:1", lambda t: _run(_infiniband(t), _half, f"{RC} {TCP}", 0.5),
         "mixed", False),
    Case("a counter of 32 bits wraps", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t, 2**32 - 5), _moved(2**32 - 5), RC), "verbs", True, "mlx5_0:1"),
    Case("a counter of 64 bits wraps", "tcp@eth0", _wrapped_interface, "tcp", True, "", "eth0"),
    Case("a counter was reset", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t, 2**40), lambda host: host.set_port("mlx5_0", 2**30), RC), "unknown", None),
    Case("a counter of 32 bits stands at its end", "rdma@mlx5_0:1",
         lambda t: _run(_infiniband(t), lambda host: host.set_port("mlx5_0", 2**32 - 1), RC), "unknown", None),
    Case("a device without counters", "rdma@mlx5_0:1", lambda t: _run(_infiniband(t, None), lambda host: None, RC),
         "unknown", None),
    Case("the device is gone", "rdma@mlx5_0:1", _gone, "unknown", None),
    Case("IPoIB", "ipoib@ib0",
         lambda t: _run(_infiniband(t), lambda host: (_moved()(host), host.move("ib0", packet=1992)), "tcp/ib0", 1.0,
                        net="10.1.0"), "ipoib", True, "", "ib0"),
    Case("IPoIB was asked for, Ethernet used", "ipoib@ib0",
         lambda t: _run(_infiniband(t), lambda host: host.move("eth0"), TCP, 1.0), "tcp", False, "", "eth0"),
    Case("tcp between two hosts", "tcp@eth0", lambda t: _run(_pair(t), lambda host: host.move("eth0"), TCP, 1.0), "tcp",
         True, "", "eth0"),
    Case("tcp on one host", "tcp@eth0", lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "", "tcp", 1.0),
         "tcp", True, "", "lo"),
    Case("tcp on one host, connections not known", "tcp@eth0",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "", "tcp", None), "tcp", True, "", "lo"),
    Case("tcp over another interface", "tcp@eth0", _other_address, "tcp", False, "", "eth1"),
    Case("a network, whose interfaces differ", "tcp@10.2.0.0/24", _differing_names, "tcp", True, "", "eth0, eth1"),
    Case("a name, where interfaces differ", "tcp@eth1", _differing_names, "tcp", False, "", "eth0, eth1"),
    Case("a network that one host did not use", "tcp@10.0.0.0/24", _one_outside, "tcp", False, "", "eth0"),
    Case("a network, connections not known", "tcp@10.0.0.0/24",
         lambda t: _run(_pair(t), lambda host: host.move("eth0"), TCP, None), "tcp", True, "", "eth0"),
    Case("another network, connections not known", "tcp@10.9.0.0/24",
         lambda t: _run(_pair(t), lambda host: host.move("eth0"), TCP, None), "tcp", False, "", "eth0"),
    Case("a network, on one host", "tcp@10.0.0.0/24",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "", "tcp", 1.0), "tcp", True, "", "lo"),
    Case("loopback's network, an interface's used", "tcp@127.0.0.0/8",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "", "tcp", 1.0), "tcp", False, "", "lo"),
    Case("an address, on one host", "tcp@10.0.0.1",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "", "tcp", 1.0), "tcp", True, "", "lo"),
    Case("IPoIB's network", "ipoib@10.1.0.0/24",
         lambda t: _run(_infiniband(t), lambda host: (_moved()(host), host.move("ib0", packet=1992)), "tcp/ib0", 1.0,
                        net="10.1.0"), "ipoib", True, "", "ib0"),
    Case("IPoIB in a network of Ethernet", "ipoib@10.0.0.0/24",
         lambda t: _run(_infiniband(t), lambda host: host.move("eth0"), TCP, 1.0), "tcp", False, "", "eth0"),
    Case("a network, and /sys is of another namespace", "tcp@10.3.0.0/24", _foreign_sys, "unknown", None, "", "veth1"),
    Case("another network, and /sys is of another namespace", "tcp@10.4.0.0/24", _foreign_sys, "unknown", False, "",
         "veth1"),
    Case("tcp was asked for, verbs used", "tcp@eth0", lambda t: _run(_infiniband(t), _moved(), RC), "verbs", False,
         "mlx5_0:1"),
    Case("/sys is of another namespace", "tcp@veth1", _foreign_sys, "unknown", None, "", "veth1"),
    Case("shared memory", "shm", lambda t: _one_host(t, lambda host: None, "sysv/memory cma/memory", "shm"), "shm",
         True),
    Case("shared memory while others use lo", "shm",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "sysv/memory", "shm"), "shm", True),
    Case("shared memory is said, and cannot be told from lo", "shm",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "sysv/memory", "shm", None), "unknown", None),
    Case("shm was asked for, tcp used", "shm",
         lambda t: _one_host(t, lambda host: host.move("lo", 2 * BYTES), "tcp/lo", "tcp", 1.0), "tcp", False, "", "lo"),
    Case("nothing was exchanged", "tcp@eth0", _no_bytes, "unknown", None),
]  # fmt: skip
