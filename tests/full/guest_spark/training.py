"""Runs in the guest: two processes that train over TCP and then over RDMA verbs; prints what both say, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # for modules that tests share

from tests.trainings import Way, trained

WAYS: list[Way] = [
    ("ring", "tcp@v0", "ucx", 1),
    ("ring", "rdma@rxe0:1", "ucx", 1),
    ("halving-doubling", "rdma@rxe0:1", "ucx", 1),
    ("ring", "tcp", "sockets", 1),
]

DEADLINE_S = 600.0
"""Both import TensorFlow, emulated, which takes 80 to 200 s."""

if __name__ == "__main__":
    print(json.dumps(dict(zip(map("/".join, (way[:3] for way in WAYS)), trained(2, WAYS, DEADLINE_S), strict=True))))
