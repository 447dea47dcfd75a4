"""What an experiment says of its channel: by what bytes travel, and over which device.

tcp                 TCP, over the interface of the cluster
tcp@eth0            over this interface
tcp@10.77.2.0/24    over the interface that has an address in this IPv4 network: names may differ between hosts
ipoib@ib0           over this InfiniBand interface; a network will do here too
rdma@mlx5_0:1       over port 1 of this device
shm                 shared memory has no device
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

WITHOUT_DEVICE = ("shm", "inproc")
"""Transports that never leave their host."""

OVER_IP = ("tcp", "ipoib")
"""Transports whose device is an interface: a network may stand for it."""

_TRANSPORT = re.compile(r"[a-z][a-z0-9-]*")
_DEVICE = re.compile(r"[^\s@/,;]+")
_WITH_PREFIX = re.compile(r"[\d.]+/\d+")


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A transport, and the device that carries it; an empty device leaves the choice to the library or the cluster.

    Whether the transport exists is for the registry `channels` to say, and whether the device does for its host.
    """

    transport: str
    device: str = ""

    @classmethod
    def parse(cls, text: str) -> ChannelSpec:
        """`TRANSPORT[@DEVICE]`; a device with a `/` is a network.

        Raises:
            ValueError: it is written otherwise; one line.
        """
        transport, at, device = text.partition("@")
        if not _TRANSPORT.fullmatch(transport):
            raise ValueError(f"channel {text!r} is not TRANSPORT or TRANSPORT@DEVICE, as in tcp@eth0 or rdma@mlx5_0:1")
        if at and not device:
            raise ValueError(f"channel {text!r} names no device after its '@'; without one it is {transport!r}")
        if at and transport in WITHOUT_DEVICE:
            raise ValueError(f"channel {text!r}: {transport} has no device; write {transport!r}")
        if "/" in device:
            _check_network(text, transport, device)
        elif at and not _DEVICE.fullmatch(device):
            raise ValueError(f"channel {text!r}: {device!r} is no name of a device; give one, as in {transport}@eth0")
        return cls(transport, device)

    def __str__(self) -> str:
        return f"{self.transport}@{self.device}" if self.device else self.transport


def _check_network(text: str, transport: str, device: str) -> None:
    """Raises ValueError: it is no IPv4 network in CIDR notation, or the transport goes over no interface."""
    try:
        network = ipaddress.IPv4Network(device, strict=False) if _WITH_PREFIX.fullmatch(device) else None
    except ValueError:
        network = None
    if network is None:
        what = "is no name of a device, and no IPv4 network: an address and a prefix of 0 to 32, as in 10.77.2.0/24"
        raise ValueError(f"channel {text!r}: {device!r} {what}")
    if str(network) != device:
        raise ValueError(f"channel {text!r}: {device} is an address with a prefix; the network is {network}")
    if transport not in OVER_IP:
        why = f"a network goes with {' and '.join(OVER_IP)} only; name the device, as in rdma@mlx5_0:1"
        raise ValueError(f"channel {text!r}: {why}")
