"""Ring all-reduce: each rank sends to the next one only (Patarasuk and Yuan 2009, as in Horovod and Baidu's ring).

The array is cut into as many chunks as there are ranks. In `size - 1` rounds each chunk goes round and gathers its sum;
in as many more the sums go round. A rank sends 2 (size - 1) / size of the array, whatever the number of ranks. What was
received of a chunk is sent on in segments, before the rest of it has come.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd.network.collectives.base import Scratch, segments
from dlobd.network.collectives.mesh import Mesh


class Ring:
    """See `dlobd.network.collectives.base.AllReduce`."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._scratch = Scratch()

    @staticmethod
    def partners(rank: int, size: int) -> set[int]:
        """The next rank and the previous one."""
        return {(rank + 1) % size, (rank - 1) % size} - {rank}

    def __call__(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        mesh, size = self._mesh, self._mesh.size
        if size == 1:
            return
        following, previous = (mesh.rank + 1) % size, (mesh.rank - 1) % size
        bounds = [index * len(array) // size for index in range(size + 1)]

        def chunk(number: int) -> NDArray[Any]:
            return array[bounds[number % size] : bounds[number % size + 1]]

        for segment in segments(chunk(mesh.rank)):
            mesh.post(following, segment, deadline_s)
        # round k brings chunk rank - 1 - k; its sum is whole after round size - 2, and is not sent on in the last one
        for k in range(2 * (size - 1)):
            summing, last = k < size - 1, k == 2 * (size - 1) - 1
            for segment in segments(chunk(mesh.rank - 1 - k)):
                if summing:
                    received = self._scratch.like(segment)
                    mesh.recv(previous, received, deadline_s)
                    np.add(segment, received, out=segment)
                else:
                    mesh.recv(previous, segment, deadline_s)
                if not last:
                    mesh.post(following, segment, deadline_s)
        mesh.drain()
