"""Channels of an experiment (`tcp@eth0`), and the table of transports."""

import re
from dataclasses import dataclass
from typing import Literal, Self

Kind = Literal["verbs", "ipoib", "tcp", "shm", "local", "mixed", "unknown"]
"""Observed carrier of the bytes. `local` is the memory of one process."""

Device = Literal["interface", "rdma port", "none"]


@dataclass(frozen=True, slots=True)
class Transport:
    """A transport of a channel: the kind of the device after the `@`, the carrier that the verdict must observe in a
    run, and the channel libraries that implement the transport, in order of preference."""

    name: str
    title: str
    device: Device
    kind: Kind
    libraries: tuple[str, ...]


_OVER_IP = ("tensorflow", "sockets", "grpc", "ucx", "mpi")
_ROWS = (
    Transport("tcp", "TCP over an IP interface, Ethernet or loopback", "interface", "tcp", _OVER_IP),
    Transport("ipoib", "TCP over an InfiniBand interface (IP over InfiniBand)", "interface", "ipoib", _OVER_IP),
    Transport("rdma", "RDMA verbs of an InfiniBand or RoCE device", "rdma port", "verbs", ("ucx", "mpi")),
    Transport("shm", "shared memory of the processes of one host", "none", "shm", ("ucx", "mpi")),
)
TRANSPORTS = {transport.name: transport for transport in _ROWS}


def transports_of(library: str) -> tuple[str, ...]:
    """Return the names of the transports that a channel library can carry."""
    return tuple(transport.name for transport in TRANSPORTS.values() if library in transport.libraries)


def over_ip(transport: str) -> bool:
    """Return True if the device of a transport is an IP interface."""
    return transport in TRANSPORTS and TRANSPORTS[transport].device == "interface"


_NAME = re.compile(r"[a-z][a-z0-9-]*")
_DEVICE = re.compile(r"[^\s@/,;]+")
_WITH_PREFIX = re.compile(r"[\d.]+/\d+")


class Channel(str):
    """A transport and the device that carries it: TRANSPORT[@DEVICE].

    An empty device leaves the choice to the library or the cluster. A device that contains a `/` is an IPv4 network,
    because interface names may differ between hosts.

    Examples:
        tcp                 TCP over the interface of the cluster
        tcp@eth0            TCP over this interface
        tcp@10.77.2.0/24    TCP over the interface that has an address in this network
        ipoib@ib0           IP over this InfiniBand interface
        rdma@mlx5_0:1       verbs over port 1 of this device
        shm                 shared memory, which has no device
    """

    __slots__ = ()

    @property
    def transport(self) -> str:
        return self.partition("@")[0]

    @property
    def device(self) -> str:
        """Device after the `@`; empty if the channel has no device."""
        return self.partition("@")[2]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a channel, without a check that its transport and device exist. Raises ValueError for wrong syntax."""
        name, at, device = text.partition("@")
        if not _NAME.fullmatch(name):
            raise ValueError(f"channel {text!r} is not TRANSPORT or TRANSPORT@DEVICE, as in tcp@eth0 or rdma@mlx5_0:1")
        if at and not device:
            raise ValueError(f"channel {text!r} has no device after the '@'; without a device, write {name!r}")
        if at and name in TRANSPORTS and TRANSPORTS[name].device == "none":
            raise ValueError(f"channel {text!r}: {name} has no device; write {name!r}")
        if "/" in device:
            _check_network(text, name, device)
        elif at and not _DEVICE.fullmatch(device):
            raise ValueError(f"channel {text!r}: {device!r} is not a device name; an example is {name}@eth0")
        return cls(text)


def _check_network(text: str, transport: str, device: str) -> None:
    import ipaddress  # imported late, because every process of a job imports this module

    try:
        network = ipaddress.IPv4Network(device, strict=False) if _WITH_PREFIX.fullmatch(device) else None
    except ValueError:
        network = None
    if network is None:
        what = "is neither a device name nor an IPv4 network such as 10.77.2.0/24, with a prefix of 0 to 32"
        raise ValueError(f"channel {text!r}: {device!r} {what}")
    if str(network) != device:
        raise ValueError(f"channel {text!r}: {device} is an address with a prefix; write the network, {network}")
    if not over_ip(transport):
        names = " and ".join(name for name in TRANSPORTS if over_ip(name))
        why = f"only {names} accept a network; name the device, as in rdma@mlx5_0:1"
        raise ValueError(f"channel {text!r}: {why}")
