"""The contract of an all-reduce: all ranks give an array of one length and type, and all get their sum.

1. `partners` says which ranks a rank talks to; who is a partner of one has it as partner.
2. The sum replaces the array. It is the same to the last bit on every rank: each element is summed on one rank, in
   one order, and copied to the others. Algorithms differ in that order, and so in the last bits.
3. Nothing is allocated in a call beside views: what is received to be added has memory of its own from the start.
4. A call that fails leaves the array undefined, and the mesh of no use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlobd.network.collectives.mesh import Mesh

SEGMENT_BYTES = 256 * 1024
"""What is received before it is added: it stays in a core's cache, and the peer sends the next one meanwhile. A round
trip through Python costs about what 64 KiB take over loopback."""


class AllReduce(Protocol):
    """One algorithm, of one rank."""

    def __init__(self, mesh: Mesh) -> None: ...

    @staticmethod
    def partners(rank: int, size: int) -> set[int]:
        """The ranks that `rank` talks to."""

    def __call__(self, array: NDArray[Any], deadline_s: float) -> None:
        """Sums in place. `array` is contiguous and of one dimension.

        Raises:
            ExchangeFailed: a peer is gone, or did not answer before the deadline, a time of time.monotonic().
        """


class Scratch:
    """Memory for a segment that is to be added."""

    def __init__(self) -> None:
        self._memory = np.empty(SEGMENT_BYTES, np.uint8)

    def like(self, segment: NDArray[Any]) -> NDArray[Any]:
        """As many elements of the same type."""
        return self._memory[: segment.nbytes].view(segment.dtype)


def segments(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The array in pieces of at most SEGMENT_BYTES. An empty one has none, at both ends alike."""
    step = max(1, SEGMENT_BYTES // array.itemsize)
    for start in range(0, len(array), step):
        yield array[start : start + step]
