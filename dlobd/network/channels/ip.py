"""Channels over IP: their base class, the address of an interface, and the interface that carries a connection."""

import threading
from typing import ClassVar

from dlobd.channel import transports_of
from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import Closed, Connection, Listener, Traffic, total_traffic

LOOPBACK = "127.0.0.1"


def resolve(transport: str, device: str) -> tuple[interfaces.Interface, str]:
    """Return interface and IPv4 address of a device: interface name, address or network; loopback if it is empty.

    Raises the errors of `interfaces.resolve`, and UsageError for ipoib without a device.
    """
    if not device and transport == "ipoib":
        raise UsageError(f"Channel {transport} needs the name of its interface.", f"write it as in {transport}@ib0")
    return interfaces.resolve(device or LOOPBACK, infiniband=transport == "ipoib")


def local_address(transport: str, device: str) -> str:
    """Return the IPv4 address of a device. Raises the errors of `resolve`."""
    return resolve(transport, device)[1]


def source_towards(transport: str, device: str, host: str) -> str:
    """Return the source address for connections to `host`; empty if the channel has no device.

    Raises the errors of `resolve`, and SetupError if the route leads over another interface.
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
    """Return host and port of a listener's address. Raises ValueError: it is not an address of this library."""
    words = address.split(":")
    if len(words) != 3 or words[0] != scheme or not words[2].isdecimal():
        raise ValueError(f"{address!r} is no address of library {scheme}; expected {scheme}:A.B.C.D:PORT")
    return words[1], int(words[2])


def traffic_over(interface: interfaces.Interface | None) -> Traffic:
    """Return zeroed counters for a new connection over an interface; TCP over InfiniBand is kind `ipoib`."""
    if interface is None or interface.type is None:
        return Traffic("unknown", interface.name if interface else "")
    return Traffic("ipoib" if interface.type == interfaces.INFINIBAND else "tcp", interface.name)


class IpChannel:
    """Base class of channels whose connections are TCP connections.

    Without a device (interface), a listener uses loopback, a connection the kernel's routes. The secret may be empty.
    """

    library: ClassVar[str]

    def __init__(self, transport: str = "tcp", device: str = "", secret: bytes = b"") -> None:
        check_transport(self.library, transport)
        self._transport = transport
        self._device = device
        self._secret = secret
        self._listeners: list[Listener] = []
        self._connections: list[Connection] = []
        self._traffic: list[Traffic] = []
        self._closed = threading.Event()

    def evidence(self) -> Traffic:
        return total_traffic(self._traffic)

    def close(self) -> None:
        """Close all listeners, which make connections, and then all connections."""
        self._closed.set()
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"this {self.library} channel is closed")

    def _keep(self, connection: Connection, traffic: Traffic) -> None:
        self._traffic.append(traffic)
        self._connections.append(connection)
        if self._closed.is_set():
            connection.close()  # a concurrent `close` may have missed it


def check_transport(library: str, transport: str) -> None:
    """Raise UsageError unless the library can carry the transport."""
    carried = transports_of(library)
    if transport not in carried:
        raise UsageError(f"Library {library} cannot carry {transport!r}.", f"use {' or '.join(carried)}")
