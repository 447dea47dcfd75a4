"""What an exchange says of itself, and what reports make of it."""

from __future__ import annotations

import json

import pytest

from dlobd.axes import EXCHANGES
from dlobd.network.exchanges.tf_ring import TfRing
from dlobd.registry import Registry, Row
from dlobd.timeline import rank
from dlobd.timeline.rank import exchange_not_measured


@pytest.mark.parametrize("name", EXCHANGES.names())
def test_an_exchange_inside_of_the_step_says_that_it_has_no_number(name: str) -> None:
    declared = EXCHANGES.declared(name)
    assert (declared.not_measured is not None) == declared.inside_step


def test_what_an_exchange_declares_is_read_without_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("tf-ring", "t", "dlobd.network.exchanges.tf_ring:TfRing", ("no_such_module",))
    monkeypatch.setattr(rank, "EXCHANGES", Registry("exchanges", row))
    expected = (TfRing.not_measured,)
    assert exchange_not_measured({"exchange": "tf-ring"}) == expected
    (unknown,) = exchange_not_measured({"exchange": "later"})
    assert "does not know exchange later" in unknown.why


def test_tensorflow_is_told_the_ranks_in_their_order() -> None:
    told = TfRing.environment(("a:1", "b:2", "c:3"), 2)
    assert json.loads(told["TF_CONFIG"]) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
        "task": {"type": "worker", "index": 1},
    }
    assert json.loads(TfRing.environment(("a:1",), 0)["TF_CONFIG"]) == {
        "cluster": {"chief": ["a:1"]},
        "task": {"type": "chief", "index": 0},
    }
