"""Entry point of the containers of the mini-cluster: `entrypoint ROLE [COMMAND...]`.

    check    checks that the containers fit into this machine's memory, and exits
    master   NameNode, ResourceManager, Spark's history server
    worker   a DataNode and a NodeManager
    edge     COMMAND, with the configuration of the cluster's clients

Docker's DNS resolves each container on each of its networks as CONTAINER.NETWORK. The daemons use the name on the
network in the variable DLOBD_NETWORK, so this setting moves HDFS and Spark from one network to another.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

import node
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.network import interfaces

READY = Path("/tmp/dlobd-ready")
"""File that Docker's health check looks for."""

UNITS = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
BURST_MS, LEAST_BURST_BYTES = 1, 16_384
"""Burst of the token bucket as time at the full rate, and the minimum burst, which must hold a whole packet."""


def main(role: str = "", *command: str) -> None:
    """Run the role. Raises DlobdError."""
    if role not in ("check", *node.ROLES) or (role == "edge" and not command):
        raise UsageError(
            f"{role or 'Nothing'} is not a role, or its command is missing.",
            "use check, master, worker or edge COMMAND",
        )
    if role == "check":
        return check_memory(os.environ)
    network, fabric, rate = (os.environ[name] for name in ("DLOBD_NETWORK", "FABRIC_NETWORK", "FABRIC_RATE"))
    name, work_dir = name_on(network), Path(os.environ["DLOBD_WORK_DIR"])
    if rate:
        limit(fabric, rate)
    host = node.Node(
        role=role,
        name=name,
        master=f"master.{network}",
        # replicas of the worker share a volume, so each has its own directory
        work_dir=work_dir / name.partition(".")[0] if role == "worker" else work_dir,
        memory_mb=int(os.environ.get("WORKER_MEMORY_MB", "4096")) - node.RESERVED_MB,
    )
    if role == "edge":
        node.configure(host)
        return node.run_command(list(command), host)
    node.end_on_signals()
    return node.serve(host, READY, lambda line: print(line, file=sys.stderr, flush=True))


def check_memory(variables: Mapping[str, str]) -> None:
    """Check that all containers at their limits fit into this machine's memory. Raises SetupError.

    The check uses the total, not the free memory, because `docker compose run` repeats it while containers run.
    """
    workers = int(variables["WORKERS"])
    parts = {"master": 1, "worker": workers, "edge": 1}
    limits = {role: int(variables[f"{role.upper()}_MEMORY_MB"]) for role in parts}
    if limits["worker"] <= node.RESERVED_MB:
        raise SetupError(
            f"WORKER_MEMORY_MB={limits['worker']} leaves no memory for a job: the daemons need {node.RESERVED_MB} MB.",
            "set at least 3072, enough for one executor",
        )
    needed = sum(count * limits[role] for role, count in parts.items())
    total = psutil.virtual_memory().total >> 20
    if needed > total:
        listed = " + ".join(f"{count} x {role} {limits[role]}" for role, count in parts.items())
        raise SetupError(
            f"The containers may use {needed} MB of memory ({listed}), but this machine has {total} MB.",
            "lower WORKERS or WORKER_MEMORY_MB (at least 3072, for one executor)",
        )


def address_on(network: str) -> str:
    """Return this container's address on a network. Raises SetupError."""
    name = f"{socket.gethostname()}.{network}"
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise SetupError(
            f"Docker's DNS has no {name}: {error}.", f"connect this container to network {network}"
        ) from error


def name_on(network: str) -> str:
    """Return this container's name on a network, such as dlobd-worker-1.dlobd-lan. Raises SetupError."""
    address = address_on(network)
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError as error:
        raise SetupError(f"Docker's DNS has no name for {address}: {error}.", "docker compose down, then up") from error


def limit(network: str, rate: str) -> None:
    """Limit the rate of this container's interface to a network; `rate` has the format of `tc`, such as 1gbit. Raises
    SetupError."""
    match = re.fullmatch(r"([1-9]\d*)([kmg])bit", rate)
    if match is None:
        raise SetupError(f"FABRIC_RATE={rate} is not a rate.", "write it as 1gbit or 100mbit")
    bytes_per_s = int(match[1]) * UNITS[match[2]] // 8
    interface = interfaces.with_address(address_on(network))
    assert interface is not None  # the address belongs to this container
    burst = max(LEAST_BURST_BYTES, bytes_per_s * BURST_MS // 1000)
    shape = ["tbf", "rate", rate, "burst", str(burst), "latency", "20ms"]
    command = ["tc", "qdisc", "replace", "dev", interface.name, "root", *shape]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = " ".join((done.stderr or done.stdout).split())[:200]
        raise SetupError(
            f"tc cannot limit {interface.name}: {output}.", "leave FABRIC_RATE empty, or add the capability NET_ADMIN"
        )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
    except DlobdError as error:
        print(f"dlobd: {error.line}", file=sys.stderr)
        sys.exit(error.exit_code)
