"""A barrier by dissemination (Hensgen, Finkel and Manber 1988): in each of ceil(log2(size)) rounds a rank tells one
other that it is there, and hears it of another one."""

from __future__ import annotations

from dlobd.network.collectives.mesh import Mesh


def partners(rank: int, size: int) -> set[int]:
    """The ranks that `rank` tells or hears."""
    distances = [1 << bit for bit in range((size - 1).bit_length())]
    return {(rank + d) % size for d in distances} | {(rank - d) % size for d in distances}


def barrier(mesh: Mesh, deadline_s: float) -> None:
    """Returns once all ranks have called it.

    Raises:
        ExchangeFailed: as an all-reduce.
    """
    token = bytearray(1)
    distance = 1
    while distance < mesh.size:
        mesh.post((mesh.rank + distance) % mesh.size, b"\0", deadline_s)
        mesh.recv((mesh.rank - distance) % mesh.size, token, deadline_s)
        distance *= 2
    mesh.drain()
