"""Micro-benchmarks as barrier tasks on the workers of the mini-cluster, over fabric."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlobd.micro import results, table
from dlobd.micro.results import Results
from tests.compose.cluster import FABRIC, MiniCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

CAP_BIT_S = 50_000_000
BENCHMARKS = ("latency", "bandwidth", "bidirectional", "rate", "put", "get", "ps", "exchange")


def measured(cluster: MiniCluster, *words: str) -> Results:
    place = ("--on", "yarn", "--channel", f"tcp@{FABRIC}", "--launches", "1", "--json")
    ended = cluster.edge("dlobd", "micro", *words, *place)
    assert ended.code == 0, ended.err
    return results.parsed(next(line for line in ended.out.splitlines() if line.startswith(results.BEGIN)))


@contextmanager
def capped(cluster: MiniCluster, *workers: int) -> Iterator[None]:
    """Limit the sending rate of workers on fabric, by their numbers from 1."""
    shape = ("root", "tbf", "rate", str(CAP_BIT_S), "burst", "32kb", "latency", "20ms")
    devices = {index: interface(cluster, index) for index in workers}
    for index, device in devices.items():
        cluster.inside("worker", "tc", "qdisc", "replace", "dev", device, *shape, index=index)
    try:
        yield
    finally:
        for index, device in devices.items():
            cluster.inside("worker", "tc", "qdisc", "delete", "dev", device, "root", index=index)


def interface(cluster: MiniCluster, index: int) -> str:
    """Return the name of a worker's interface of fabric."""
    listed = json.loads(cluster.inside("worker", "ip", "-json", "address", index=index).out)
    network = FABRIC.rpartition(".")[0] + "."
    (name,) = {link["ifname"] for link in listed for one in link["addr_info"] if one["local"].startswith(network)}
    return str(name)


@pytest.mark.parametrize("slow", [(), (1, 2, 3)], ids=["uncapped", "capped"])
def test_all_benchmarks_between_hosts(cluster: MiniCluster, slow: tuple[int, ...]) -> None:
    few = ("--servers", "1", "--workers", "2", "--exchange", "ring", "--exchange", "mpi", "--sizes", "8,64K")
    with capped(cluster, *slow):
        found = measured(cluster, *BENCHMARKS, *few, "--time", "0.1")
    assert {point.benchmark for point in found.points()} == set(BENCHMARKS)
    libraries = {route.library for route in found.routes() if not route.exchange}
    assert libraries == {"bare", "sockets", "grpc", "ucx"}
    assert {route.exchange for route in found.routes()} == {"", "ring", "mpi"}
    for launch in found.launches:
        assert launch.failed == ""
        assert len(set(launch.hosts)) == len(launch.hosts), launch.hosts
        assert not any(point.bad for point in launch.points)
    planes = [launch.transport for launch in found.launches if launch.transport]
    assert {(plane.kind, plane.agrees) for plane in planes} == {("tcp", True)}
    assert not any(note.startswith("One host only") for note in found.notes)


def test_the_worker_with_a_slow_link_is_named(cluster: MiniCluster) -> None:
    """The cap limits its sending rate only, so that it is slow as a sender."""
    slow = cluster.inside("worker", "hostname", index=2).out.strip()
    with capped(cluster, 2):
        found = measured(cluster, "bandwidth", "--library", "sockets", "--pairs", "--ranks", "3", "--sizes", "256K")
    assert len({launch.hosts for launch in found.launches}) == 6
    (by_pair,) = table.tables(found)
    assert by_pair.note == f"Slow: {slow} as sender: below half of the fastest pair."
    for launch in found.launches:
        (point,) = launch.points
        bytes_per_s = 1e9 * point.point.messages * point.point.payload.bytes * len(point.times_ns) / sum(point.times_ns)
        assert (bytes_per_s < 1.1 * CAP_BIT_S / 8) == (launch.hosts[1] == slow), launch.hosts
