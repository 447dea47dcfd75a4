"""Hosts of a measurement: network namespaces, connected by a bridge in another namespace.

The links carry no other traffic.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dlobd.errors import SetupError
from dlobd.micro.plan import Role
from dlobd.micro.processes import EndProcess, Received
from dlobd.tracing.clock import host_name

UP_S = 10.0
INTERFACE = "eth1"


@dataclass(frozen=True, slots=True)
class Host:
    """Network namespace, or this machine, and its address on the link."""

    namespace: str  # name of the namespace; empty for this machine
    address: str

    @property
    def name(self) -> str:
        return self.namespace or host_name()

    @property
    def command(self) -> tuple[str, ...]:
        """Prefix of a command line for this host: `ip netns exec NAME`."""
        return ("ip", "netns", "exec", self.namespace) if self.namespace else ()

    def start(self, role: Role, received: Received) -> EndProcess:
        return EndProcess(role, received, self.command)


HERE = Host("", "127.0.0.1")
"""This machine, over loopback."""


@contextmanager
def hosts(count: int, rate: str = "") -> Iterator[list[Host]]:
    """Create hosts with an interface eth1 on a common network; remove them at the end of the block.

    Args:
        rate: limit of a host's sending rate in tc's syntax, such as 1gbit; empty for no limit.

    Raises SetupError: namespaces cannot be created.
    """
    if shutil.which("ip") is None or os.geteuid():
        raise SetupError("Network namespaces need root and iproute2.", "run this as root, with iproute2 installed")
    prefix = f"dlobd-{os.getpid()}-{time.monotonic_ns() % 100_000}"
    switch, names = f"{prefix}-s", [f"{prefix}-{number}" for number in range(count)]
    created = []
    try:
        try:
            for name in (switch, *names):
                _ip("netns", "add", name)
                created.append(name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", switch, "link", "set", "br0", "up")
            for number, name in enumerate(names, 1):
                _link(switch, name, number, rate)
        except subprocess.CalledProcessError as error:
            why = error.stderr.decode().strip()
            raise SetupError(f"Network namespaces cannot be created: {why}.", "use another machine") from error
        for name in names:
            _await_up(name)
        yield [Host(name, f"10.79.0.{number}") for number, name in enumerate(names, 1)]
    finally:
        for name in created:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20, check=False)


def _link(switch: str, name: str, number: int, rate: str) -> None:
    _ip("-n", switch, "link", "add", f"p{number}", "type", "veth", "peer", "name", INTERFACE, "netns", name)
    _ip("-n", switch, "link", "set", f"p{number}", "master", "br0", "up")
    _ip("-n", name, "address", "add", f"10.79.0.{number}/24", "dev", INTERFACE)
    _ip("-n", name, "link", "set", INTERFACE, "up")
    if rate:
        words = ("qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms")
        subprocess.run(["tc", "-n", name, *words], check=True, capture_output=True, timeout=20)


def _await_up(name: str) -> None:
    # an interface is unavailable to UCX until its state is UP
    until_s = time.monotonic() + UP_S
    while "state UP" not in _ip("-n", name, "link", "show", INTERFACE):
        if time.monotonic() > until_s:
            raise SetupError(f"{INTERFACE} of {name} does not come up.", "look at `ip link`")
        time.sleep(0.01)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)
    return done.stdout.decode()
