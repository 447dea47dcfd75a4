"""A slow network for a whole run including its daemons: a network namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dlobd.errors import SetupError

RATE = "100mbit"


@contextmanager
def narrow_loopback() -> Iterator[tuple[str, ...]]:
    """Create a network namespace with a loopback of `RATE`; yield the prefix of commands that run in it.

    Raises:
        SetupError: this user or machine cannot create namespaces.
    """
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        raise SetupError("A network namespace needs root and iproute2.", "run as root, with iproute2 installed")
    name = f"dlobd-{os.getpid()}-{time.monotonic_ns() % 100_000}"
    try:
        _make(name)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20, check=False)


def _make(name: str) -> None:
    try:
        for line in (
            f"ip netns add {name}",
            f"tc -n {name} qdisc add dev lo root tbf rate {RATE} burst 256kb latency 50ms",
            f"ip -n {name} link set lo up",
        ):
            subprocess.run(line.split(), check=True, capture_output=True, timeout=20)
    except subprocess.CalledProcessError as error:
        raise SetupError(
            f"The narrow network cannot be created: {error.stderr.decode().strip()}.", "use another machine"
        ) from error
