"""The network interfaces of this host, as the kernel shows them in sysfs, with their IPv4 addresses.

    /sys/class/net/NAME/type, operstate, mtu, speed, mode

`type` is an ARPHRD number of linux/if_arp.h: 32 is IP over InfiniBand. `mode`, datagram or connected, exists for IPoIB.
sysfs shows the network namespace in which it was mounted; `ip netns exec` mounts it again. Source:
Documentation/ABI/testing/sysfs-class-net of Linux.
"""

import difflib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import psutil

from dlobd.errors import SetupError, UsageError
from dlobd.network.devices import listed, read_number, read_text

SYSFS = Path("/sys/class/net")
VIRTUAL = Path("/sys/devices/virtual")
ETHERNET = 1
INFINIBAND = 32
LOOPBACK = 772
_WORDS = {ETHERNET: "ethernet", INFINIBAND: "infiniband", LOOPBACK: "loopback"}
_DISCARD_PORT = 9  # port for route lookups, which send nothing


@dataclass(frozen=True, slots=True)
class Interface:
    """Network interface. Values that the kernel does not report are None."""

    name: str
    type: int | None  # ARPHRD number
    state: str | None  # up, down, lowerlayerdown ...; loopback and tunnels are `unknown` while they are up
    addresses: tuple[str, ...]  # IPv4 addresses
    mtu_bytes: int | None
    speed_mbit_per_s: int | None  # None also for virtual interfaces without another one below, such as veth
    mode: str = ""  # mode of IP over InfiniBand, datagram or connected; empty for other interfaces

    @property
    def kind(self) -> str:
        return _WORDS.get(self.type, f"type {self.type}") if self.type is not None else "of an unknown type"

    @property
    def up(self) -> bool:
        """True if it may carry packets. Drivers without carrier detection report `unknown`."""
        return self.state in ("up", "unknown")


def interfaces(root: Path = SYSFS, addresses: Mapping[str, Sequence[str]] | None = None) -> list[Interface]:
    """Return all interfaces in `root`, sorted by name. By default their addresses are those of this namespace."""
    known = _ipv4() if addresses is None else addresses
    # `bonding_masters`, a file of the bonding driver, is no interface
    return [_interface(path, tuple(known.get(path.name, ()))) for path in listed(root) if path.is_dir()]


def network_of(device: str) -> IPv4Network | None:
    """Return the IPv4 network of a device (an address is a network of size 1); None if the device is a name."""
    try:
        return IPv4Network(device)
    except ValueError:
        return None


def resolve(
    device: str, infiniband: bool = False, root: Path = SYSFS, addresses: Mapping[str, Sequence[str]] | None = None
) -> tuple[Interface, str]:
    """Return the interface of a device and the IPv4 address to use. The interface is up.

    The device is an interface name (its first address is used), an address, or a network in CIDR notation.

    Raises UsageError: no interface has this name; the nearest name is suggested. Raises SetupError: no interface, or
    more than one, has such an address; or the interface is not IP over InfiniBand as required, is down, or has no
    address.
    """
    found = interfaces(root, addresses)
    network = network_of(device)
    interface = _named(device, found) if network is None else _within(network, device, found)
    name = interface.name
    if infiniband and interface.type != INFINIBAND:
        others = [other.name for other in found if other.type == INFINIBAND]
        remedy = f"choose {' or '.join(others)}" if others else f"this host has no InfiniBand interface; use tcp@{name}"
        raise SetupError(f"Interface {name!r} is {interface.kind}, not infiniband: it cannot carry IPoIB.", remedy)
    if not interface.up:
        state = interface.state or "in an unknown state"
        raise SetupError(f"Interface {name!r} is {state}.", f"bring it up (ip link set {name} up) and check its link")
    if not interface.addresses:
        raise SetupError(f"Interface {name!r} has no IPv4 address.", f"add one: ip address add A.B.C.D/N dev {name}")
    return interface, interface.addresses[0] if network is None else _address_in(network, interface)


def _named(name: str, found: Sequence[Interface]) -> Interface:
    names = [interface.name for interface in found]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UsageError(f"This host has no interface {name!r}{hint}", f"choose one of {', '.join(names) or 'none'}")
    return found[names.index(name)]


def _within(network: IPv4Network, device: str, found: Sequence[Interface]) -> Interface:
    inside = [interface for interface in found if _address_in(network, interface)]
    if not inside:
        wanted = "an address in" if "/" in device else "the address"
        every = [f"{address} ({interface.name})" for interface in found for address in interface.addresses]
        raise SetupError(
            f"This host has no interface with {wanted} {device}; its addresses are {', '.join(every) or 'none'}.",
            "choose one of these addresses, or look at `ip address`",
        )
    # a single address can be bound even if several interfaces have it, as tunnels do
    if len(inside) > 1 and "/" in device:
        both = ", ".join(f"{interface.name} ({_address_in(network, interface)})" for interface in inside)
        raise SetupError(
            f"This host has more than one interface with an address in {device}: {both}.",
            f"name one interface, such as {inside[0].name}, or a smaller network",
        )
    return inside[0]


def _address_in(network: IPv4Network, interface: Interface) -> str:
    """Return the interface's first address in the network; empty if there is none. All of 127/8 belongs to loopback."""
    if interface.type == LOOPBACK and network.prefixlen == 32 and network.is_loopback:
        return str(network.network_address)
    return next((address for address in interface.addresses if IPv4Address(address) in network), "")


def with_address(address: str) -> Interface | None:
    """Return the interface that has an IPv4 address (127/8 is loopback); None if no interface of this host has it."""
    loopback = address.startswith("127.")
    for interface in interfaces():
        if address in interface.addresses or (loopback and interface.type == LOOPBACK):
            return interface
    return None


def towards(host: str) -> Interface | None:
    """Return the interface on the kernel's route to an IPv4 address; None if the interface is unknown.

    Packets to this host's own addresses go over loopback. Raises SetupError: there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, _DISCARD_PORT))
        except OSError as error:
            raise SetupError(f"There is no route to {host}: {error.strerror}.", "look at `ip route get`") from error
        source = probe.getsockname()[0]
    return with_address("127.0.0.1" if source == host else source)


def carrying(local: str, remote: str) -> Interface | None:
    """Return the interface of a connection between two IPv4 addresses; `local` is an address of this host."""
    both_here = with_address(remote) is not None
    return with_address("127.0.0.1" if both_here else local)


def _interface(path: Path, addresses: tuple[str, ...]) -> Interface:
    speed = read_number(path / "speed")
    # veth and tun report a nominal 10 Gbit/s; a bond or VLAN has the speed of the interfaces below it
    if VIRTUAL in path.resolve().parents and not any(path.glob("lower_*")):
        speed = None
    return Interface(
        name=path.name,
        type=read_number(path / "type"),
        state=read_text(path / "operstate"),
        addresses=addresses,
        mtu_bytes=read_number(path / "mtu"),
        speed_mbit_per_s=speed if speed is not None and speed > 0 else None,
        mode=read_text(path / "mode") or "",
    )


def _ipv4() -> dict[str, list[str]]:
    """Return addresses by interface; an alias such as eth0:1 belongs to the interface before the colon."""
    found: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        of_name = found.setdefault(name.partition(":")[0], [])
        of_name += [entry.address for entry in addresses if entry.family == socket.AF_INET]
    return found
