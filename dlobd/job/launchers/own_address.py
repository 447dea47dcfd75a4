"""The address of this host at which a rank is to be found by the others."""

from __future__ import annotations

import os

CHANNEL = "_DLOBD_CHANNEL"
"""The environment variable with the experiment's channel. The driver sets it for its executors' Python workers."""

BIND_IP = "TFOS_BIND_IP"
"""The address of this host. Not SPARK_LOCAL_IP: an ApplicationMaster hands its own on to executors on other hosts."""


def own_address() -> str:
    """That of the channel's device, an interface or a network, if it has one; else what `TFOS_BIND_IP` says; else
    empty: as a launcher sees fit.

    Raises:
        UsageError, SetupError: this host has no such interface, or it cannot be used.
    """
    # a Python worker asks once it records, and not before
    from dlobd.channel import Channel, over_ip
    from dlobd.network.channels.ip import local_address

    channel = Channel.parse(os.environ.get(CHANNEL, "tcp"))
    if over_ip(channel.transport) and channel.device:
        return local_address(channel.transport, channel.device)
    return os.environ.get(BIND_IP, "")
