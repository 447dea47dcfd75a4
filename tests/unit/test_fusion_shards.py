"""Shards of a buffer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlobd.network.exchanges.fusion import shards


@given(st.integers(0, 200), st.integers(1, 7))
def test_each_element_belongs_to_one_server(elements: int, servers: int) -> None:
    found = [range(elements)[part] for part in shards(elements, servers)]
    assert len(found) == servers
    assert [element for part in found for element in part] == list(range(elements))
    assert max(map(len, found)) - min(map(len, found)) <= 1
