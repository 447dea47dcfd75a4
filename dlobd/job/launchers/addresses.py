"""Addresses of the driver and of ranks, and the driver's clock server for hosts with another clock."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dlobd.tracing import clock_sync

if TYPE_CHECKING:
    from pyspark import SparkContext

CHANNEL = "_DLOBD_CHANNEL"
"""Environment variable with the experiment's channel. The driver sets it for its executors' Python workers."""

BIND_IP = "TFOS_BIND_IP"
"""Environment variable with this host's address. SPARK_LOCAL_IP cannot be used: an ApplicationMaster passes its own
value to executors on other hosts."""


def rank_address() -> str:
    """Return the address at which other ranks reach this host: the address of the channel's device (an interface or a
    network), if it has a device; else `TFOS_BIND_IP`; else an empty string: the launcher chooses.

    Raises UsageError or SetupError if this host has no such interface, or cannot use it.
    """
    # imported late: a Python worker must open its recorder first
    from dlobd.channel import Channel, over_ip
    from dlobd.network.channels.ip import local_address

    channel = Channel.parse(os.environ.get(CHANNEL, "tcp"))
    if over_ip(channel.transport) and channel.device:
        return local_address(channel.transport, channel.device)
    return os.environ.get(BIND_IP, "")


def without_proxy(addresses: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable by which TensorFlow's gRPC connects to `addresses` (HOST:PORT) directly, in an environment
    with an HTTP proxy. gRPC prefers it to no_proxy, which other clients continue to use."""
    hosts = [address.rpartition(":")[0].strip("[]") for address in addresses]
    if not hosts or not any(environment.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return {}
    users = environment.get("no_grpc_proxy", environment.get("no_proxy", "")).split(",")
    return {"no_grpc_proxy": ",".join(filter(None, dict.fromkeys([*users, *hosts])))}


def driver_host(sc: SparkContext) -> str:
    """Return a host for the driver's servers that executors reach; never a wildcard address such as 0.0.0.0."""
    conf = sc.getConf()
    hosts = [conf.get("spark.driver.bindAddress"), os.environ.get(BIND_IP), conf.get("spark.driver.host")]
    return next((host for host in hosts if host and host not in ("0.0.0.0", "::")), socket.gethostname())


def serve_clock(sc: SparkContext) -> clock_sync.Server | None:
    """Start the clock server, and pass its address to all Python workers that start afterwards.

    PySpark sends the address, as part of its environment, with each Python function: configuration and command line
    would expose the secret. Returns None if the driver cannot listen; the job continues without a clock server.
    """
    try:
        server = clock_sync.Server(driver_host(sc))
    except OSError as error:
        print(f"dlobd: the offsets of other hosts' clocks stay unknown: {error}", file=sys.stderr)
        return None
    sc.environment.update(server.environment)
    return server
