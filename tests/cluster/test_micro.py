"""Micro-benchmarks as barrier tasks on the executors of a YARN cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.micro import results

from .conftest import Dlobd

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

CHOSEN = ("--servers", "1", "--workers", "1", "--exchange", "ring", "--exchange", "mpi", "--sizes", "8,64K")


def test_barrier_tasks_measure_every_library(dlobd: Dlobd, tmp_path: Path) -> None:
    """All executors are on this machine, so that no figure is across hosts."""
    file = tmp_path / "micro.json"
    words = ("latency", "bandwidth", "bidirectional", "rate", "ps", "exchange", "put", "get")
    brief = ("--launches", "1", "--time", "0.05", "--warm-up", "0.02")
    place = ("--on", "yarn", "--out", str(dlobd.out), "-o", str(file))
    ended = dlobd("micro", *words, *CHOSEN, *brief, *place, within_s=380)
    assert ended.code == 0, ended.err
    found = results.read(file)
    between = {(route.library, route.transport) for route in found.routes() if not route.exchange}
    assert between == {("bare", "tcp"), ("sockets", "tcp"), ("grpc", "tcp"), ("ucx", "shm")}
    assert {route.exchange for route in found.routes()} == {"", "ring", "mpi"}
    measured = {point.benchmark for point in found.points()}
    assert measured == set(words)
    assert not any(point.bad for launch in found.launches for point in launch.points)
    assert all(launch.transport.agrees for launch in found.launches if launch.transport)
    assert "One host only" in ended.out
    assert len({host for launch in found.launches for host in launch.hosts}) == 1
    assert "ucx over tcp" in ended.out  # UCX finds no route over loopback


def test_a_job_without_results_fails(dlobd: Dlobd, tmp_path: Path) -> None:
    """UCX finds no route over loopback, which only the executors know."""
    file = tmp_path / "micro.json"
    chosen = ("--channel", "tcp", "--library", "ucx", "--launches", "1")
    ended = dlobd("micro", "latency", *chosen, "--on", "yarn", "--out", str(dlobd.out), "-o", str(file))
    assert ended.code == 5
    assert ended.line.startswith("dlobd: The job on YARN failed: ")
    assert "dlobd show " in ended.line
    assert not file.exists()
