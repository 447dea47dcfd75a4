"""A job of MPI: the driver's two servers, and ranks that are fresh processes."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dlobd.network.exchanges.outside_step import RENDEZVOUS
from dlobd.network.rendezvous.pmi import PmiServer
from dlobd.network.rendezvous.store import KeyValueStore

PATIENCE_S = 40.0
SECRET = "of this run"
CLONE_NEWNET = 0x40000000  # linux/sched.h

T = TypeVar("T")

RANK = """\
import os, signal, sys, time
from types import SimpleNamespace
import numpy as np
from dlobd.network.exchanges import outside_step
from dlobd.channel import Channel
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.mpi import MpiAllReduce

rank, size, host = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tf = SimpleNamespace(constant=lambda array: array)  # arrays show their memory as tensors do
exchange = MpiAllReduce(Settings(Channel("tcp"), "mpi", 64 << 20, 1))

def join():
    exchange.join(tf, [f"{host}:1"] * size, rank)

def reduce(*tensors):
    return exchange.reduce(tf, tensors, size)

"""


class MpiJob:
    """Ranks that run some Python after RANK, started at once.

    Args:
        size: as all are told.
        ranks: those that come; all unless told otherwise.
        secrets: of ranks that have another one than the driver.
        hosts: the address of each rank, and its network namespace, empty for that of the tests. The driver is in the
            first one.
    """

    def __init__(
        self,
        code: str,
        size: int,
        ranks: Sequence[int] | None = None,
        secrets: dict[int, str] | None = None,
        hosts: Sequence[tuple[str, str]] = (),
    ) -> None:
        places = hosts or [("127.0.0.1", "")] * size
        address, namespace = places[0]
        self.store = _inside(namespace, lambda: KeyValueStore(address, size, SECRET.encode()))
        self.pmi = _inside(namespace, lambda: PmiServer(address, size, SECRET.encode()))
        self.ranks: dict[int, subprocess.Popen[str]] = {}
        place = {"address": self.store.address, "pmi": self.pmi.address}
        for rank in range(size) if ranks is None else ranks:
            secret = (secrets or {}).get(rank, SECRET)
            self.ranks[rank] = subprocess.Popen(
                [
                    *(("ip", "netns", "exec", places[rank][1]) if places[rank][1] else ()),
                    *(sys.executable, "-c", RANK + textwrap.dedent(code), str(rank), str(size)),
                    places[rank][0],
                ],
                env={
                    **os.environ,
                    RENDEZVOUS: json.dumps({**place, "secret": secret}),
                    "PYTHONPATH": str(Path(__file__).parents[1]),
                    "OPENBLAS_NUM_THREADS": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def __enter__(self) -> MpiJob:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.ranks.values():
            process.kill()
            process.communicate()
        self.store.close()
        self.pmi.close()

    def line(self, rank: int) -> str:
        out = self.ranks[rank].stdout
        said = out.readline().strip()
        assert said, self.ends(rank)
        return said

    def ends(self, rank: int) -> tuple[int, str, str]:
        """Return status, output and errors of a rank, once it has ended."""
        process = self.ranks[rank]
        out, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, errors


def _inside(namespace: str, make: Callable[[], T]) -> T:
    """Call `make` in a thread inside a network namespace: its sockets stay there."""

    def work() -> T:
        if namespace:
            with open(f"/run/netns/{namespace}") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        return make()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result(PATIENCE_S)


def results(code: str, size: int, hosts: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the output of each rank of a job that ends well, without stderr."""
    with MpiJob(code, size, hosts=hosts) as job:
        ended = [job.ends(rank) for rank in range(size)]
        assert not job.pmi.refused
    assert [(status, errors) for status, _, errors in ended] == [(0, "")] * size, ended
    return [out for _, out, _ in ended]
