"""Hosts as network namespaces, with a bridge of a namespace of its own between them: real links, made and removed by
the test, which carry nothing of anybody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

UP_S = 10.0
INTERFACE = "eth1"


@dataclass(frozen=True)
class Host:
    """A namespace, and its address on the link. `command` begins a command line that runs there."""

    namespace: str
    address: str

    @property
    def command(self) -> tuple[str, ...]:
        """`ip netns exec NAME`."""
        return "ip", "netns", "exec", self.namespace


@contextmanager
def hosts(count: int, rate: str = "") -> Iterator[list[Host]]:
    """So many hosts, each with an interface eth1 on one network.

    Args:
        rate: of each one's sending, as tc writes it: 1gbit; empty for as fast as the machine is.

    Skips the test where there may be no namespaces, with the reason.
    """
    if shutil.which("ip") is None or os.geteuid():
        pytest.skip("network namespaces need root and iproute2")
    prefix = f"dlobd-{os.getpid()}-{time.monotonic_ns() % 100_000}"
    switch, names = f"{prefix}-s", [f"{prefix}-{number}" for number in range(count)]
    made = []
    try:
        try:
            for name in (switch, *names):
                _ip("netns", "add", name)
                made.append(name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", switch, "link", "set", "br0", "up")
            for number, name in enumerate(names, 1):
                _link(switch, name, number, rate)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode().strip()}")
        for name in names:
            _await_up(name)
        yield [Host(name, f"10.79.0.{number}") for number, name in enumerate(names, 1)]
    finally:
        for name in made:
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
    """UCX calls an interface unavailable until its state is UP."""
    until_s = time.monotonic() + UP_S
    while "state UP" not in _ip("-n", name, "link", "show", INTERFACE):
        assert time.monotonic() < until_s, f"{INTERFACE} of {name} does not come up"
        time.sleep(0.01)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)
    return done.stdout.decode()
