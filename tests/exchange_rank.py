"""One rank of an exchange, as a process of its own: joins, reduces, leaves, and prints the bits of its last means.

    python tests/exchange_rank.py SPANS RANK PEER,PEER,... EXCHANGE CHANNEL LIBRARY CALLS

The key-value store is in the environment, as in a job. TensorFlow is not needed: arrays expose memory as tensors do.
"""

from __future__ import annotations

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from dlobd import tracing
from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.network.exchanges.base import Exchange, Settings

SHAPES: list[tuple[int, ...]] = [(), (7, 3), (1000,), (0,), (300, 33)]


def gradients(rank: int) -> list[Any]:
    random = np.random.default_rng(rank)
    return [np.asarray(random.standard_normal(shape), np.float32) for shape in SHAPES]


def main() -> None:
    spans, rank, peers, name, channel, library, calls = sys.argv[1:]
    tf = SimpleNamespace(constant=lambda array: array)
    tracing.start(spans, "worker" if int(rank) else "chief", max(0, int(rank) - 1))
    exchange: Exchange = EXCHANGES.get(name)(Settings(Channel.parse(channel), library, 1 << 20, 1))
    exchange.join(tf, peers.split(","), int(rank))
    found: list[Any] = []
    for _ in range(int(calls)):
        found = exchange.reduce(tf, gradients(int(rank)), len(peers.split(",")))
    exchange.close()
    tracing.flush()
    print(hashlib.sha256(b"".join(np.asarray(tensor).tobytes() for tensor in found)).hexdigest())


if __name__ == "__main__":
    main()
