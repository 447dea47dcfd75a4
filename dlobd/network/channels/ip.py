"""IP addresses and routes of channels: which address an interface has, and which interface carries a connection."""

from __future__ import annotations

from dlobd.channel import TRANSPORTS
from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import Counts

LOOPBACK = "127.0.0.1"


def resolve(transport: str, device: str) -> tuple[interfaces.Interface, str]:
    """Return the interface and the IPv4 address of a device: a name, an address or a network; loopback if empty.

    Raises:
        UsageError, SetupError: see `dlobd.network.interfaces.resolve`; also if the transport needs a device.
    """
    if not device and TRANSPORTS[transport].needs_device:
        raise UsageError(f"Channel {transport} needs the name of its interface.", f"write it as in {transport}@ib0")
    return interfaces.resolve(device or LOOPBACK, infiniband=transport == "ipoib")


def local_address(transport: str, device: str) -> str:
    """Return the IPv4 address of a device. Raises as `resolve`."""
    return resolve(transport, device)[1]


def source_towards(transport: str, device: str, host: str) -> str:
    """Return the source address for connections to `host`; empty if the channel has no device.

    Raises:
        UsageError, SetupError: as `resolve`, or the route leads over another interface.
    """
    if not device:
        return ""
    interface, source = resolve(transport, device)
    route = interfaces.towards(host)
    if route is None or (route.name != interface.name and route.type != interfaces.LOOPBACK):
        over = route.name if route else "an unknown interface"
        asked = device if device == interface.name else f"{interface.name}, which has {source}"
        raise SetupError(f"The route to {host} leads over {over}, not over {asked}.", f"look at `ip route get {host}`")
    return source


def parse_address(scheme: str, address: str) -> tuple[str, int]:
    """Return host and port of a listener's address.

    Raises:
        ValueError: it is not an address of this library.
    """
    words = address.split(":")
    if len(words) != 3 or words[0] != scheme or not words[2].isdecimal():
        raise ValueError(f"{address!r} is no address of library {scheme}; expected {scheme}:A.B.C.D:PORT")
    return words[1], int(words[2])


def counts_of(interface: interfaces.Interface | None) -> Counts:
    """Return zero counts for a connection over an interface; TCP over InfiniBand is kind `ipoib`."""
    if interface is None or interface.type is None:
        return Counts("unknown", interface.name if interface else "")
    return Counts("ipoib" if interface.type == interfaces.INFINIBAND else "tcp", interface.name)
