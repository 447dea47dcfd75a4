"""Ranks that train together, as processes (`training_rank.py`), by one exchange after the other."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from dlobd.job.launchers.native import free_addresses
from dlobd.network.rendezvous.pmi import PmiServer
from dlobd.network.rendezvous.store import KeyValueStore

RANK = Path(__file__).with_name("training_rank.py")

Way = tuple[str, str, str, int]
"""Exchange, channel, library, servers."""


def trained(ranks: int, ways: Sequence[Way], deadline_s: float = 120.0, host: str = "127.0.0.1") -> list[list[Any]]:
    """For each way what each rank says of it.

    Args:
        host: where the ranks meet, an address of this host.
    """
    with ExitStack() as opened:
        places = [_place(opened, ranks, way, host) for way in ways]
        started = [
            subprocess.Popen(
                [sys.executable, str(RANK), str(rank), json.dumps(places)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
            for rank in range(ranks)
        ]
        try:
            for process in started:
                assert process.stdin is not None
                process.stdin.write(json.dumps(ways))
                process.stdin.close()
                process.stdin = None
            said = [process.communicate(timeout=deadline_s)[0] for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    assert [process.returncode for process in started] == [0] * ranks, said
    found = [[json.loads(line) for line in one.splitlines() if line.startswith("{")] for one in said]
    return [list(each) for each in zip(*found, strict=True)]


def _place(opened: ExitStack, ranks: int, way: Way, host: str) -> dict[str, Any]:
    secret = secrets.token_hex(16)
    store = opened.enter_context(closing(KeyValueStore(host, ranks, secret.encode())))
    place: dict[str, Any] = {"address": store.address, "secret": secret, "peers": free_addresses(ranks)}
    if way[2] == "mpi":
        place["pmi"] = opened.enter_context(closing(PmiServer(host, ranks, secret.encode()))).address
    return place
