"""Addresses of the driver and of ranks, and the driver's clock server for hosts with another clock."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from dlobd.tracing import clock_sync

if TYPE_CHECKING:
    from pyspark import SparkContext

CHANNEL = "_DLOBD_CHANNEL"
"""The environment variable with the experiment's channel. The driver sets it for its executors' Python workers."""

BIND_IP = "TFOS_BIND_IP"
"""The environment variable with this host's address. An ApplicationMaster would pass its own SPARK_LOCAL_IP to
executors on other hosts, so that variable cannot serve."""


def rank_address() -> str:
    """Return the address at which other ranks reach this host: the address of the channel's device (an interface or a
    network), if it has one; else `TFOS_BIND_IP`; else empty: the launcher chooses.

    Raises UsageError, SetupError: this host has no such interface, or it cannot be used.
    """
    # imported late: a Python worker must open its recorder first
    from dlobd.channel import Channel, over_ip
    from dlobd.network.channels.ip import local_address

    channel = Channel.parse(os.environ.get(CHANNEL, "tcp"))
    if over_ip(channel.transport) and channel.device:
        return local_address(channel.transport, channel.device)
    return os.environ.get(BIND_IP, "")


def driver_host(sc: SparkContext) -> str:
    """Return an address on which this driver listens for its executors, also if Spark listens on all addresses."""
    conf = sc.getConf()
    hosts = [conf.get("spark.driver.bindAddress"), os.environ.get(BIND_IP), conf.get("spark.driver.host")]
    return next((host for host in hosts if host and host not in ("0.0.0.0", "::")), socket.gethostname())


def serve_clock(sc: SparkContext) -> clock_sync.Server | None:
    """Start the clock server, and pass its address to all Python workers that start from now on.

    The address travels with each Python function, like all of PySpark's environment, because configuration and command
    line would expose its secret. Returns None if the driver cannot listen; the job continues without it.
    """
    try:
        server = clock_sync.Server(driver_host(sc))
    except OSError as error:
        print(f"dlobd: the offsets of other hosts' clocks stay unknown: {error}", file=sys.stderr)
        return None
    sc.environment.update(server.environment)
    return server
