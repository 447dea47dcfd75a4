"""Shards: which slice of each fusion buffer belongs to which parameter server.

Each buffer is cut for itself into as many slices as there are servers, so that slices are contiguous memory and no
server needs to know of tensors. Of one buffer, two servers' slices differ by at most one element; who has the longer
ones changes from buffer to buffer, so that the differences do not add up at one server.
"""

from __future__ import annotations

from collections.abc import Sequence


def shards(sizes: Sequence[int], servers: int) -> list[list[slice]]:
    """Server by server, its slice of each buffer; a slice may be empty.

    Args:
        sizes: the elements of each buffer.
        servers: how many there are, at least one.
    """
    found: list[list[slice]] = [[] for _ in range(servers)]
    longer = 0  # the server that has the first longer slice of the next buffer
    for size in sizes:
        each, more = divmod(size, servers)
        start = 0
        for server in range(servers):
            stop = start + each + ((server - longer) % servers < more)
            found[server].append(slice(start, stop))
            start = stop
        longer = (longer + more) % servers
    return found
