"""Chooses a block of consecutive free ports for the daemons."""

import os
import random
import socket
from collections.abc import Sequence

import psutil

from dlobd.errors import SetupError


def choose_ports(hosts: Sequence[str], base: int | None = None) -> list[int]:
    """Return consecutive free ports, one for each of `hosts` (addresses to bind), from port `base`, or by default in a
    random block outside the ephemeral range: no outgoing connection can take a port before a daemon's bind.
    Raises SetupError if a fixed port is taken or out of range, or no free block was found."""
    if base is not None:
        if not 1024 <= base <= 65536 - len(hosts):
            raise SetupError(
                f"The port base {base} is out of range: {len(hosts)} ports from 1024 to 65535 are needed.",
                "choose another DLOBD_PORT_BASE, or unset it.",
            )
        for port, host in enumerate(hosts, base):
            if not _is_free(host, port):
                raise SetupError(
                    f"Port {port} on {host} is taken{_owner(port)}.",
                    f"stop that process, or choose a DLOBD_PORT_BASE with {len(hosts)} free ports, or unset it.",
                )
        return list(range(base, base + len(hosts)))
    low, high = _range_outside_ephemeral(len(hosts))
    for _ in range(200):
        first = random.randint(low, high - len(hosts))
        if all(_is_free(host, port) for port, host in enumerate(hosts, first)):
            return list(range(first, first + len(hosts)))
    raise SetupError(f"Ports {low} to {high} have no block of {len(hosts)} free ports.", "stop servers in this range.")


def port_base() -> int | None:
    """Return DLOBD_PORT_BASE, or None. Raises SetupError if it is not a number."""
    text = os.environ.get("DLOBD_PORT_BASE", "").strip()
    if not text:
        return None
    if not text.isdecimal():
        raise SetupError(f"DLOBD_PORT_BASE={text!r} is not a port number.", "set it to 23000, or unset it.")
    return int(text)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # as in the daemons, connections in TIME_WAIT do not block a server
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _range_outside_ephemeral(needed: int) -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            low, high = (int(word) for word in file.read().split())
    except (OSError, ValueError):
        low, high = 32768, 60999
    if low - 10000 >= 10 * needed:
        return 10000, low
    if 65536 - high >= 10 * needed:
        return high + 1, 65536
    return 10000, 65536


def _owner(port: int) -> str:
    """Return ' by NAME (pid N)' if this user may see the process, else an empty string."""
    try:
        for connection in psutil.net_connections("tcp"):
            listening = connection.status == psutil.CONN_LISTEN and connection.pid
            # the address is an empty tuple for a socket that has no address
            if listening and getattr(connection.laddr, "port", None) == port:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return ""
