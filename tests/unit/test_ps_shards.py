"""Which slice of each buffer belongs to which parameter server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlobd.network.exchanges.shards import shards

sizes_of_buffers = st.lists(st.integers(0, 200), max_size=6)
servers_of_a_run = st.integers(1, 7)


@given(sizes_of_buffers, servers_of_a_run)
def test_each_element_belongs_to_one_server(sizes: list[int], servers: int) -> None:
    """In the order of the servers."""
    found = shards(sizes, servers)
    assert len(found) == servers
    for buffer, size in enumerate(sizes):
        elements = [element for server in found for element in range(size)[server[buffer]]]
        assert elements == list(range(size))


@given(sizes_of_buffers, servers_of_a_run)
def test_servers_have_equally_much(sizes: list[int], servers: int) -> None:
    """Of each buffer to one element; and so of all buffers together."""
    lengths = [[one.stop - one.start for one in server] for server in shards(sizes, servers)]
    for of_one_buffer in zip(*lengths, strict=True):
        assert max(of_one_buffer) - min(of_one_buffer) <= 1
    totals = [sum(server) for server in lengths]
    assert max(totals) - min(totals) <= 1
