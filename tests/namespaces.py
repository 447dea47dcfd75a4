"""Hosts as network namespaces, as tests want them: without them a test is skipped, with the reason."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from dlobd.errors import SetupError
from dlobd.micro.hosts import INTERFACE, UP_S, Host
from dlobd.micro.hosts import hosts as made

__all__ = ["INTERFACE", "Host", "hosts", "with_other_name"]


@contextmanager
def hosts(count: int, rate: str = "") -> Iterator[list[Host]]:
    with ExitStack() as opened:
        try:
            found = opened.enter_context(made(count, rate))
        except SetupError as error:
            pytest.skip(str(error))
        yield found


def with_other_name(host: Host, name: str, address: str) -> None:
    """The host's interface on the network gets this name; its old one is that of an interface with another address, as
    in a container that is on two networks."""
    for words in (
        f"link set {INTERFACE} down",
        f"link set {INTERFACE} name {name}",
        f"link set {name} up",
        f"link add {INTERFACE} type veth peer name other",
        f"address add {address} dev {INTERFACE}",
        "link set other up",
        f"link set {INTERFACE} up",
    ):
        subprocess.run(["ip", "-n", host.namespace, *words.split()], check=True, capture_output=True, timeout=20)
    until_s = time.monotonic() + UP_S
    while time.monotonic() < until_s and "state UP" not in _shown(host, name):
        time.sleep(0.01)


def _shown(host: Host, name: str) -> str:
    command = ["ip", "-n", host.namespace, "link", "show", name]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
