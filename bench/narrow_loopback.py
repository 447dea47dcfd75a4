"""A network namespace with a slow loopback, for runs whose exchange should wait for the network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dlobd.micro.hosts import HERE, Host, hosts

MTU_BYTES, BURST_BYTES = 1500, 3200  # those of an Ethernet, and two packets: a larger burst would be free
LIMIT_BYTES = 64_000_000  # of the queue: senders wait for acknowledgements, and nothing is lost


@contextmanager
def narrow_loopback(rate: str) -> Iterator[Host]:
    """Yield a new namespace, whose loopback has a rate in the syntax of tc; both directions share it.

    Raises SetupError: namespaces cannot be created.
    """
    with hosts(1) as (host,):
        lo = f"-n {host.namespace} link set lo mtu {MTU_BYTES}"
        subprocess.run(["ip", *lo.split()], check=True, capture_output=True, timeout=20)
        limit = f"qdisc add dev lo root tbf rate {rate} burst {BURST_BYTES} limit {LIMIT_BYTES}"
        subprocess.run(["tc", "-n", host.namespace, *limit.split()], check=True, capture_output=True, timeout=20)
        yield replace(host, address=HERE.address)
