"""What libraries over IP share: the address of an interface, the way to a host, and what carries a connection."""

from __future__ import annotations

from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.two_sided import Counts

LOOPBACK = "127.0.0.1"


def resolved(transport: str, device: str) -> tuple[interfaces.Interface, str]:
    """The interface of a device, given by its name, its IPv4 address, or a network, and its address; loopback for none.

    Raises:
        UsageError, SetupError: see `dlobd.network.interfaces.resolve`; ipoib needs a device.
    """
    if transport == "ipoib" and not device:
        raise UsageError("Channel ipoib needs the name of its interface.", "write it as in ipoib@ib0")
    return interfaces.resolve(device or LOOPBACK, infiniband=transport == "ipoib")


def local_address(transport: str, device: str) -> str:
    """The IPv4 address of a device. Raises as `resolved`."""
    return resolved(transport, device)[1]


def source_towards(transport: str, device: str, host: str) -> str:
    """The address to connect to `host` from; empty where no interface was asked for.

    Raises:
        UsageError, SetupError: as `resolved`, or the way there leads over another interface.
    """
    if not device:
        return ""
    interface, source = resolved(transport, device)
    way = interfaces.towards(host)
    if way is None or (way.name != interface.name and way.type != interfaces.LOOPBACK):
        over = way.name if way else "an interface that is not known"
        asked = device if device == interface.name else f"{interface.name}, which has {source}"
        raise SetupError(f"The way to {host} leads over {over}, not over {asked}.", f"look at `ip route get {host}`")
    return source


def parsed(scheme: str, address: str) -> tuple[str, int]:
    """Host and port of an address as a listener gives it.

    Raises:
        ValueError: it is of another library, or none.
    """
    words = address.split(":")
    if len(words) != 3 or words[0] != scheme or not words[2].isdecimal():
        raise ValueError(f"{address!r} is no address of library {scheme}, which are {scheme}:A.B.C.D:PORT")
    return words[1], int(words[2])


def counts_of(interface: interfaces.Interface | None) -> Counts:
    """For a connection that this interface carries; InfiniBand below it makes it IPoIB."""
    if interface is None or interface.type is None:
        return Counts("unknown", interface.name if interface else "")
    return Counts("ipoib" if interface.type == interfaces.INFINIBAND else "tcp", interface.name)
