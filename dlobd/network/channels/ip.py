"""What libraries over IP share: the address of an interface, the way to a host, and what carries a connection."""

from __future__ import annotations

import ipaddress

from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.two_sided import Counts


def local_address(transport: str, device: str) -> str:
    """The IPv4 address of the interface; loopback's for none. An IPv4 address stands for its interface.

    Raises:
        UsageError, SetupError: see `dlobd.network.interfaces.usable`.
    """
    if is_address(device):
        if interfaces.with_address(device) is None:
            raise SetupError(f"This host has no interface with the address {device}.", "look at `ip address`")
        return device
    if device:
        return interfaces.usable(device, infiniband=transport == "ipoib").addresses[0]
    if transport == "ipoib":
        raise UsageError("Channel ipoib needs the name of its interface.", "write it as in ipoib@ib0")
    return "127.0.0.1"


def source_towards(transport: str, device: str, host: str) -> str:
    """The address to connect to `host` from; empty where no interface was asked for.

    Raises:
        UsageError, SetupError: as `local_address`, or the way there leads over another interface.
    """
    if not device:
        return ""
    source = local_address(transport, device)
    way = interfaces.towards(host)
    if way is None or (way.name != _name(device) and way.type != interfaces.LOOPBACK):
        over = way.name if way else "an interface that is not known"
        raise SetupError(f"The way to {host} leads over {over}, not over {device}.", f"look at `ip route get {host}`")
    return source


def is_address(device: str) -> bool:
    """Whether a device is given by its IPv4 address."""
    try:
        ipaddress.IPv4Address(device)
    except ValueError:
        return False
    return True


def _name(device: str) -> str:
    """Of the interface."""
    by_address = interfaces.with_address(device) if is_address(device) else None
    return by_address.name if by_address else device


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
