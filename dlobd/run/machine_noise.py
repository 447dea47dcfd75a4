"""Measurement noise of this machine: timers, loops and round trips, and the wall times of earlier runs.

`FULL` takes about 5 s; `SHORT`, before every run, about 0.6 s. On a shared machine the figures apply only to the moment
of the measurement. Runs use JVMs and a disk and wait, so they vary more than loops of milliseconds. The wall times of
earlier runs show this variation.
"""

import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles, stdev

import psutil

from dlobd.bundle.store import RUN_ID, Bundle
from dlobd.record.run import Noise
from dlobd.run.provenance import MACHINE

SLEEP_NS = 1_000_000
LOOP_NS = 25_000_000
PING_BYTES = 64

MAX_BUNDLES = 50
"""Maximum number of bundles to read, which takes about 30 ms."""

ALL = "this machine, which runs all of it"
CLIENT = "the client machine; the cluster's nodes were not measured"
"""Descriptions of the machine on which a run's noise was measured."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Numbers of measurements by kind. The first `settle` measurements of a kind are discarded as warm-up. A 99th
    percentile needs about 300."""

    timer_reads: int
    sleeps: int
    loops: int
    pings: int
    settle: int


FULL = Effort(timer_reads=20_000, sleeps=300, loops=60, pings=4_000, settle=8)
SHORT = Effort(timer_reads=2_000, sleeps=300, loops=8, pings=400, settle=2)


def measure(effort: Effort = FULL) -> Noise:
    """Run all measurements in sequence. Raises OSError if loopback or /proc is missing."""
    before = psutil.cpu_times()
    loops = _loops(effort)
    sleeps = _sleeps(effort)
    pings = _pings(effort)
    after = psutil.cpu_times()
    readings = [time.monotonic_ns() for _ in range(effort.timer_reads)]
    return Noise(
        timer_ns=round(median(b - a for a, b in pairwise(readings))),
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


def _sleeps(effort: Effort) -> list[int]:
    excess_ns = []
    for _ in range(effort.sleeps + effort.settle):
        start_ns = time.monotonic_ns()
        time.sleep(SLEEP_NS / 1e9)
        excess_ns.append(time.monotonic_ns() - start_ns - SLEEP_NS)
    return excess_ns[effort.settle :]


def _loops(effort: Effort) -> list[int]:
    """Return the durations of a fixed loop, which is calibrated once to take about LOOP_NS."""

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
    """Return round-trip times over loopback to a thread. Connections of other processes are refused."""
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
            times_ns = []
            for _ in range(effort.pings + effort.settle):
                start_ns = time.monotonic_ns()
                client.sendall(message)
                left = PING_BYTES
                while left:
                    left -= len(client.recv(left)) or left
                times_ns.append(time.monotonic_ns() - start_ns)
        echo.join(5)
    return times_ns[effort.settle :]


def _echo(peer: socket.socket) -> None:
    with peer:
        while data := peer.recv(PING_BYTES):
            peer.sendall(data)


def _steal_share(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Return steal time, column 8, as a fraction of all CPU time between two readings of the CPU times."""
    spent = [b - a for a, b in zip(before[:8], after[:8], strict=True)]  # guest time is part of user time
    return spent[7] / sum(spent) if sum(spent) > 0 else None


def earlier_walls_ns(bundle: Bundle, record: Mapping[str, object]) -> list[int]:
    """Return the wall times of the latest successful runs, oldest first, with the experiment key and machine of the new
    run's `record`. Damaged records are skipped."""
    wanted = _identity(record)
    beside = sorted(path for path in bundle.path.parent.glob("*/run.json") if RUN_ID.fullmatch(path.parent.name))
    walls = []
    for path in [path for path in beside if path.parent != bundle.path][-MAX_BUNDLES:]:
        try:
            other = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(other, dict) and other.get("status") == "ok" and _identity(other) == wanted:
            wall_ns = other.get("wall_ns")
            if isinstance(wall_ns, int) and wall_ns:
                walls.append(wall_ns)
    return walls


def _identity(record: Mapping[str, object]) -> tuple[object, ...]:
    platform = record.get("platform")
    machine = platform if isinstance(platform, dict) else {}
    return record.get("experiment_key"), *(machine.get(name) for name in MACHINE)
