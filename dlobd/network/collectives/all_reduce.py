"""All-reduces: all ranks provide an array of the same length and type, and all receive the sum.

1. `partners` returns the peers of a rank. The relation is symmetric.
2. The sum replaces the array. It has the same bits on every rank: all ranks have the sum of one rank, or add the same
   pairs. Algorithms differ in the order of additions, and therefore in the last bits.
3. A call allocates only views: segments to be added are received into preallocated memory.
4. A failed call leaves the array undefined, and the mesh unusable.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from dlobd.network.channels.base import Array
from dlobd.network.collectives.mesh import Mesh

SEGMENT_BYTES = 256 * 1024
"""Unit of receiving and adding: it stays in a core's cache while the peer sends the next segment. Python's
overhead per segment equals the transfer time of about 64 KiB over loopback."""


SMALL_BYTES = 64 * 1024
"""Size up to which a message takes Python longer than the network; such arrays are summed in fewer rounds."""


class AllReduce(ABC):
    """Base class of the all-reduce algorithms on one rank, with preallocated memory for a received segment."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._memory = np.empty(SEGMENT_BYTES, np.uint8)

    @staticmethod
    @abstractmethod
    def partners(rank: int, size: int) -> set[int]:
        """Return the ranks that `rank` communicates with."""

    @abstractmethod
    def __call__(self, array: Array, deadline_s: float) -> None:
        """Sum `array` in place over all ranks. It is contiguous, with one dimension.

        Raises ExchangeFailed: a peer is gone or late."""

    def _recv(self, sender: int, part: Array, deadline_s: float, add: bool = False) -> None:
        for segment in _segments(part):
            received = self._memory[: segment.nbytes].view(segment.dtype) if add else segment
            self._mesh.recv(sender, received, deadline_s)
            if add:
                np.add(segment, received, out=segment)


class Ring(AllReduce):
    """Ring all-reduce: each rank sends only to the next rank (Patarasuk and Yuan 2009, as in Horovod).

    The array is cut into as many chunks as there are ranks. In `size - 1` rounds each chunk travels around the ring and
    accumulates its sum; in another `size - 1` rounds the sums travel. A rank sends 2 (size - 1) / size of the array,
    for any number of ranks. Segments of a chunk are forwarded before the rest of the chunk has arrived.
    """

    @staticmethod
    def partners(rank: int, size: int) -> set[int]:
        return {(rank + 1) % size, (rank - 1) % size} - {rank}

    def __call__(self, array: Array, deadline_s: float) -> None:
        mesh, size = self._mesh, self._mesh.size
        if size == 1:
            return
        following, previous = (mesh.rank + 1) % size, (mesh.rank - 1) % size
        bounds = [index * len(array) // size for index in range(size + 1)]

        def chunk(number: int) -> Array:
            return array[bounds[number % size] : bounds[number % size + 1]]

        for segment in _segments(chunk(mesh.rank)):
            mesh.post(following, segment, deadline_s)
        # round k receives chunk rank - 1 - k; its sum is complete after round size - 2; the last round sends nothing
        for k in range(2 * (size - 1)):
            reducing, last = k < size - 1, k == 2 * (size - 1) - 1
            for segment in _segments(chunk(mesh.rank - 1 - k)):
                self._recv(previous, segment, deadline_s, add=reducing)
                if not last:
                    mesh.post(following, segment, deadline_s)
        mesh.drain()


class HalvingDoubling(AllReduce):
    """Recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005).

    Halving: pairs of ranks, distant pairs first, send each other half of their current part and sum the other half,
    until each rank has the sum of one part. Doubling: the same pairs, near pairs first, send each other their sums. It
    takes 2 log2(size) rounds instead of a ring's 2 (size - 1), and moves as many bytes. Small arrays take log2(size)
    rounds, in which pairs of ranks send each other the whole array (recursive doubling, ibid.).

    If the number of ranks is not a power of two, the excess ranks first send their array to a neighbour, and receive
    the sum at the end.
    """

    @staticmethod
    def partners(rank: int, size: int) -> set[int]:
        core, extra = _core(size), size - _core(size)
        folded = {rank ^ 1} if rank < 2 * extra else set()
        if rank < 2 * extra and rank % 2 == 0:
            return folded
        place = _place(rank, extra)
        return folded | {_rank(place ^ (1 << bit), extra) for bit in range(core.bit_length() - 1)}

    def __call__(self, array: Array, deadline_s: float) -> None:
        mesh, core = self._mesh, _core(self._mesh.size)
        extra = mesh.size - core
        if mesh.rank < 2 * extra and mesh.rank % 2 == 0:  # an excess rank
            self._send(mesh.rank + 1, array, deadline_s)
            self._recv(mesh.rank + 1, array, deadline_s)
            return
        if mesh.rank < 2 * extra:
            self._recv(mesh.rank - 1, array, deadline_s, add=True)
        (self._double if array.nbytes <= SMALL_BYTES else self._halve_and_double)(array, core, extra, deadline_s)
        if mesh.rank < 2 * extra:
            self._send(mesh.rank - 1, array, deadline_s)

    def _double(self, array: Array, core: int, extra: int, deadline_s: float) -> None:
        mesh, received = self._mesh, self._memory[: array.nbytes].view(array.dtype)
        for bit in range(core.bit_length() - 1 if len(array) else 0):
            partner = _rank(_place(mesh.rank, extra) ^ (1 << bit), extra)
            mesh.post(partner, array, deadline_s)
            self._recv(partner, received, deadline_s)
            mesh.drain()
            np.add(array, received, out=array)

    def _halve_and_double(self, array: Array, core: int, extra: int, deadline_s: float) -> None:
        mesh, place = self._mesh, _place(self._mesh.rank, extra)
        low, high = 0, len(array)
        halved: list[tuple[int, int, int]] = []  # partner, and the bounds of the part that the pair shared
        mask = core >> 1
        while mask:
            partner, middle = _rank(place ^ mask, extra), (low + high) // 2
            halved.append((partner, low, high))
            mine, theirs = (low, middle), (middle, high)
            if place & mask:
                mine, theirs = theirs, mine
            self._post(partner, array[slice(*theirs)], deadline_s)
            self._recv(partner, array[slice(*mine)], deadline_s, add=True)
            mesh.drain()
            low, high = mine
            mask >>= 1
        for partner, whole_low, whole_high in reversed(halved):
            self._post(partner, array[low:high], deadline_s)
            theirs = (high, whole_high) if low == whole_low else (whole_low, low)
            self._recv(partner, array[slice(*theirs)], deadline_s)
            mesh.drain()
            low, high = whole_low, whole_high

    def _post(self, to: int, part: Array, deadline_s: float) -> None:
        for segment in _segments(part):
            self._mesh.post(to, segment, deadline_s)

    def _send(self, to: int, part: Array, deadline_s: float) -> None:
        for segment in _segments(part):
            self._mesh.send(to, segment, deadline_s)


def _segments(array: Array) -> Iterator[Array]:
    """Cut the array into views of at most SEGMENT_BYTES; an empty array has no segments, and nothing is sent."""
    step = max(1, SEGMENT_BYTES // array.itemsize)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def _core(size: int) -> int:
    """Return the largest power of two that is at most `size`."""
    return 1 << (size.bit_length() - 1)


def _place(rank: int, extra: int) -> int:
    """Map a rank to its index in the power-of-two group. `extra` is the number of ranks above that power of two."""
    return rank // 2 if rank < 2 * extra else rank - extra


def _rank(place: int, extra: int) -> int:
    return 2 * place + 1 if place < extra else place + extra
