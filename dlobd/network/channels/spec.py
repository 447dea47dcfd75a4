"""What an experiment says of its channel: by what bytes travel, and over which device.

tcp                 TCP, over the interface of the cluster
tcp@eth0            over this interface
ipoib@ib0           over this InfiniBand interface
rdma@mlx5_0:1       over port 1 of this device
shm                 shared memory has no device
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WITHOUT_DEVICE = ("shm", "inproc")
"""Transports that never leave their host."""

_TRANSPORT = re.compile(r"[a-z][a-z0-9-]*")
_DEVICE = re.compile(r"[^\s@/,;]+")


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A transport, and the device that carries it; an empty device leaves the choice to the library or the cluster.

    Whether the transport exists is for the registry `channels` to say, and whether the device does for its host.
    """

    transport: str
    device: str = ""

    @classmethod
    def parse(cls, text: str) -> ChannelSpec:
        """`TRANSPORT[@DEVICE]`.

        Raises:
            ValueError: it is written otherwise; one line.
        """
        transport, at, device = text.partition("@")
        if not _TRANSPORT.fullmatch(transport):
            raise ValueError(f"channel {text!r} is not TRANSPORT or TRANSPORT@DEVICE, as in tcp@eth0 or rdma@mlx5_0:1")
        if at and not device:
            raise ValueError(f"channel {text!r} names no device after its '@'; without one it is {transport!r}")
        if at and not _DEVICE.fullmatch(device):
            raise ValueError(f"channel {text!r}: {device!r} is no name of a device; give one, as in {transport}@eth0")
        if at and transport in WITHOUT_DEVICE:
            raise ValueError(f"channel {text!r}: {transport} has no device; write {transport!r}")
        return cls(transport, device)

    def __str__(self) -> str:
        return f"{self.transport}@{self.device}" if self.device else self.transport
