"""Ranks that train together, as processes (`training_rank.py`), by one exchange after the other."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

from dlobd.job.launchers.native import free_addresses
from dlobd.network.rendezvous.pmi import PmiServer
from dlobd.network.rendezvous.store import KeyValueStore
from tests import forks

Way = tuple[str, str, str, int]
"""Exchange, channel, library, servers."""


def trained(ranks: int, ways: Sequence[Way], deadline_s: float = 240.0, host: str = "127.0.0.1") -> list[list[Any]]:
    """For each way what each rank says of it.

    Args:
        host: where the ranks meet, an address of this host.
    """
    with ExitStack() as opened:
        places = [_place(opened, ranks, way, host) for way in ways]
        done = forks.run(
            [("-m", "tests.training_rank", rank, json.dumps(places)) for rank in range(ranks)],
            deadline_s,
            json.dumps(ways),
            CUDA_VISIBLE_DEVICES="",
            TF_CPP_MIN_LOG_LEVEL="2",
        )
    assert [one.returncode for one in done] == [0] * ranks, done
    found = [[json.loads(line) for line in one.stdout.splitlines() if line.startswith("{")] for one in done]
    return [list(each) for each in zip(*found, strict=True)]


def _place(opened: ExitStack, ranks: int, way: Way, host: str) -> dict[str, Any]:
    secret = secrets.token_hex(16)
    store = opened.enter_context(closing(KeyValueStore(host, ranks, secret.encode())))
    place: dict[str, Any] = {"address": store.address, "secret": secret, "peers": free_addresses(ranks)}
    if way[2] == "mpi":
        place["pmi"] = opened.enter_context(closing(PmiServer(host, ranks, secret.encode()))).address
    return place
