"""Declarations of exchanges, fusion of tensors into buffers, and shards of a buffer."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.axes import EXCHANGES
from dlobd.network.exchanges.fusion import Fusion, shards
from dlobd.network.exchanges.tf_ring import TfRing
from dlobd.registry import Registry, Row
from dlobd.timeline import ranks
from dlobd.timeline.ranks import exchange_not_measured


@pytest.mark.parametrize("name", EXCHANGES.names())
def test_an_exchange_inside_of_the_step_declares_that_it_is_not_measured(name: str) -> None:
    declared = EXCHANGES.declared(name)
    assert (declared.not_measured is not None) == declared.inside_step


def test_declarations_of_an_exchange_need_no_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("tf-ring", "t", "dlobd.network.exchanges.tf_ring:TfRing", ("no_such_module",))
    monkeypatch.setattr(ranks, "EXCHANGES", Registry("exchanges", row))
    expected = (TfRing.not_measured,)
    assert exchange_not_measured({"exchange": "tf-ring"}) == expected
    (unknown,) = exchange_not_measured({"exchange": "later"})
    assert "has no exchange later" in unknown.why


def test_tensorflow_gets_the_ranks_in_their_order() -> None:
    told = TfRing.environment(("a:1", "b:2", "c:3"), 2)
    assert json.loads(told["TF_CONFIG"]) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
        "task": {"type": "worker", "index": 1},
    }
    assert json.loads(TfRing.environment(("a:1",), 0)["TF_CONFIG"]) == {
        "cluster": {"chief": ["a:1"]},
        "task": {"type": "chief", "index": 0},
    }


SHAPES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), max_size=3).map(tuple), st.sampled_from((np.float32, np.float64, np.float16))
    ),
    max_size=12,
)


@given(forms=SHAPES, bucket_bytes=st.integers(1, 400))
def test_unpack_reverses_pack(forms: list[tuple[tuple[int, ...], type]], bucket_bytes: int) -> None:
    tensors = [np.arange(math.prod(shape)).reshape(shape).astype(dtype) for shape, dtype in forms]
    fusion = Fusion(tensors, bucket_bytes)
    fusion.pack(tensors)
    for tensor, found in zip(tensors, fusion.unpack(), strict=True):
        assert found.dtype == tensor.dtype
        np.testing.assert_array_equal(found, tensor)
    assert fusion.bytes == sum(tensor.nbytes for tensor in tensors)


@given(forms=SHAPES, bucket_bytes=st.integers(1, 400))
def test_a_buffer_is_larger_than_asked_only_for_one_tensor(
    forms: list[tuple[tuple[int, ...], type]], bucket_bytes: int
) -> None:
    tensors = [np.zeros(shape, dtype) for shape, dtype in forms]
    longest = max((tensor.nbytes for tensor in tensors), default=0)
    for bucket in Fusion(tensors, bucket_bytes).buckets:
        assert bucket.nbytes <= max(bucket_bytes, longest)


def test_tensors_share_a_buffer_as_planned() -> None:
    fusion = Fusion([np.zeros(n, np.float32) for n in (1, 2, 3, 4)], 24)
    assert [len(bucket) for bucket in fusion.buckets] == [6, 4]
    fusion = Fusion([np.zeros(3, np.float32)], 24)
    with pytest.raises(ValueError, match="shapes or types of the tensors differ from the fusion plan"):
        fusion.pack([np.zeros(4, np.float32)])


@given(st.integers(0, 200), st.integers(1, 7))
def test_each_element_belongs_to_one_server(elements: int, servers: int) -> None:
    found = [range(elements)[part] for part in shards(elements, servers)]
    assert len(found) == servers
    assert [element for part in found for element in part] == list(range(elements))
    assert max(map(len, found)) - min(map(len, found)) <= 1
