"""This machine's measurement noise, and the smallest effects that can be told from it.

`FULL` takes about five seconds; `SHORT`, before every run, about 0.6. All figures are of now: another minute has
another neighbour.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles, stdev

from dlobd.record.run import Noise

SLEEP_NS = 1_000_000
LOOP_NS = 25_000_000
PING_BYTES = 64

ALL = "this machine, which runs all of it"
CLIENT = "the client machine; the cluster's nodes were not measured"
"""Which machine a run's noise was measured on."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each thing is measured. Of each series the first `settle` are left out: caches, clock speed and the
    connection settle. A 99th percentile wants about 300."""

    timer_reads: int
    sleeps: int
    loops: int
    pings: int
    settle: int


FULL = Effort(timer_reads=20_000, sleeps=300, loops=60, pings=4_000, settle=8)
SHORT = Effort(timer_reads=2_000, sleeps=300, loops=8, pings=400, settle=2)


def measure(effort: Effort = FULL) -> Noise:
    """Measures all of it, one after the other.

    Raises:
        OSError: there is no loopback, or no /proc.
    """
    before = _cpu_times()
    loops = _loops(effort)
    sleeps = _sleeps(effort)
    pings = _pings(effort)
    after = _cpu_times()
    return Noise(
        timer_ns=_timer_ns(effort),
        sleep_over_p50_ns=round(median(sleeps)),
        sleep_over_p99_ns=_p99(sleeps),
        loop_variation=stdev(loops) / fmean(loops),
        loop_slowest=max(loops) / median(loops),
        steal_share=_steal_share(before, after),
        loopback_p50_ns=round(median(pings)),
        loopback_p99_ns=_p99(pings),
        load_1m=float(Path("/proc/loadavg").read_text().split()[0]),
    )


def _p99(values: Sequence[int]) -> int:
    return round(quantiles(values, n=100)[98])


def _timer_ns(effort: Effort) -> int:
    readings = [time.monotonic_ns() for _ in range(effort.timer_reads)]
    return round(median(b - a for a, b in pairwise(readings)))


def _sleeps(effort: Effort) -> list[int]:
    found = []
    for _ in range(effort.sleeps + effort.settle):
        start_ns = time.monotonic_ns()
        time.sleep(SLEEP_NS / 1e9)
        found.append(time.monotonic_ns() - start_ns - SLEEP_NS)
    return found[effort.settle :]


def _loops(effort: Effort) -> list[int]:
    """The same piece of work again and again; its size is chosen once, so that it takes about LOOP_NS."""

    def work(rounds: int) -> int:
        start_ns = time.monotonic_ns()
        total = 0
        for i in range(rounds):
            total += i * i
        return time.monotonic_ns() - start_ns

    rounds = 10_000
    while (took_ns := work(rounds)) < LOOP_NS // 4:
        rounds *= 2
    rounds = max(1, rounds * LOOP_NS // took_ns)
    return [work(rounds) for _ in range(effort.loops + effort.settle)][effort.settle :]


def _pings(effort: Effort) -> list[int]:
    """Round trips over loopback, with a thread at the other end; the socket takes no other peer."""
    message = bytes(PING_BYTES)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        with socket.create_connection(listener.getsockname(), timeout=5) as client:
            peer, address = listener.accept()
            if address != client.getsockname():
                peer.close()
                raise OSError("another process connected to the loopback probe")
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            echo = threading.Thread(target=_echo, args=(peer,), daemon=True)
            echo.start()
            found = []
            for _ in range(effort.pings + effort.settle):
                start_ns = time.monotonic_ns()
                client.sendall(message)
                left = PING_BYTES
                while left:
                    left -= len(client.recv(left)) or left
                found.append(time.monotonic_ns() - start_ns)
        echo.join(5)
    return found[effort.settle :]


def _echo(peer: socket.socket) -> None:
    with peer:
        while data := peer.recv(PING_BYTES):
            peer.sendall(data)


def _cpu_times() -> list[int]:
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def _steal_share(before: Sequence[int], after: Sequence[int]) -> float | None:
    """Of all CPU time between two readings of /proc/stat; the eighth figure is steal."""
    spent = [b - a for a, b in zip(before, after, strict=False)]
    total = sum(spent[:8])  # guest time is part of user time
    return spent[7] / total if len(spent) > 7 and total > 0 else None
