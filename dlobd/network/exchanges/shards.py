"""Shards: which slice of a buffer belongs to which parameter server."""

from __future__ import annotations


def shards(elements: int, servers: int) -> list[slice]:
    """Server by server, its slice: contiguous memory, of lengths that differ by at most one; some may be empty.

    Args:
        servers: how many there are, at least one.
    """
    bounds = [elements * server // servers for server in range(servers + 1)]
    return [slice(bounds[server], bounds[server + 1]) for server in range(servers)]
