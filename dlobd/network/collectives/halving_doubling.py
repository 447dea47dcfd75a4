"""Recursive halving and doubling, for any number of ranks (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005).

Halving: pairs of ranks, far ones first, give each other the half of what both still have, and sum the other half, until
each has the sum of one part. Doubling: the same pairs, near ones first, give each other what they have. It takes
2 log2(size) rounds, where a ring takes 2 (size - 1), and moves as many bytes.

Where the number of ranks is no power of two, as many of the first ones as there are too many give all that they have to
their neighbour, and get the sum at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd.network.collectives.base import Scratch, segments
from dlobd.network.collectives.mesh import Mesh


class HalvingDoubling:
    """See `dlobd.network.collectives.base.AllReduce`."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._scratch = Scratch()

    @staticmethod
    def partners(rank: int, size: int) -> set[int]:
        """Those of its pairs, and the neighbour of one that is too many."""
        core, extra = _core(size), size - _core(size)
        folded = {rank ^ 1} if rank < 2 * extra else set()
        if rank < 2 * extra and rank % 2 == 0:
            return folded
        place = _place(rank, extra)
        return folded | {_rank(place ^ (1 << bit), extra) for bit in range(core.bit_length() - 1)}

    def __call__(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        mesh, core = self._mesh, _core(self._mesh.size)
        extra = mesh.size - core
        if mesh.rank < 2 * extra and mesh.rank % 2 == 0:  # one that is too many
            self._give(mesh.rank + 1, array, deadline_s)
            self._take(mesh.rank + 1, array, deadline_s)
            return
        if mesh.rank < 2 * extra:
            self._add(mesh.rank - 1, array, deadline_s)
        place = _place(mesh.rank, extra)
        low, high = 0, len(array)
        halved: list[tuple[int, int, int]] = []  # partner, and what this rank and it had together
        mask = core >> 1
        while mask:
            partner, middle = _rank(place ^ mask, extra), (low + high) // 2
            halved.append((partner, low, high))
            mine, theirs = (low, middle), (middle, high)
            if place & mask:
                mine, theirs = theirs, mine
            self._post(partner, array[slice(*theirs)], deadline_s)
            self._add(partner, array[slice(*mine)], deadline_s)
            mesh.drain()
            low, high = mine
            mask >>= 1
        for partner, whole_low, whole_high in reversed(halved):
            self._post(partner, array[low:high], deadline_s)
            theirs = (high, whole_high) if low == whole_low else (whole_low, low)
            self._take(partner, array[slice(*theirs)], deadline_s)
            mesh.drain()
            low, high = whole_low, whole_high
        if mesh.rank < 2 * extra:
            self._give(mesh.rank - 1, array, deadline_s)

    def _post(self, to: int, part: NDArray[Any], deadline_s: float) -> None:
        for segment in segments(part):
            self._mesh.post(to, segment, deadline_s)

    def _give(self, to: int, part: NDArray[Any], deadline_s: float) -> None:
        for segment in segments(part):
            self._mesh.send(to, segment, deadline_s)

    def _take(self, sender: int, part: NDArray[Any], deadline_s: float) -> None:
        for segment in segments(part):
            self._mesh.recv(sender, segment, deadline_s)

    def _add(self, sender: int, part: NDArray[Any], deadline_s: float) -> None:
        for segment in segments(part):
            received = self._scratch.like(segment)
            self._mesh.recv(sender, received, deadline_s)
            np.add(segment, received, out=segment)


def _core(size: int) -> int:
    """The largest power of two that is not above `size`."""
    return 1 << (size.bit_length() - 1)


def _place(rank: int, extra: int) -> int:
    """Among those that halve; `extra` ranks are too many."""
    return rank // 2 if rank < 2 * extra else rank - extra


def _rank(place: int, extra: int) -> int:
    return 2 * place + 1 if place < extra else place + extra
