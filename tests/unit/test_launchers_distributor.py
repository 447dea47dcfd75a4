"""spark-tensorflow-distributor as published: what is added only records."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.experiment import files
from dlobd.job.launchers import distributor
from dlobd.job.launchers.base import Node


def test_a_rank_gets_its_place_from_the_distributors_own_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["a:1", "b:2", "c:3"]}
    nodes: list[Node] = []
    for index in range(3):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}))
        main = distributor._DistributorMain(lambda job, node: nodes.append(node), SimpleNamespace(exchange="tf-ring"))
        main()
    assert [(node.role, node.index, node.rank) for node in nodes] == [
        ("chief", 0, 0),
        ("worker", 0, 1),
        ("worker", 1, 2),
    ]
    assert {node.peers for node in nodes} == {("a:1", "b:2", "c:3")}
    assert all(node.feed is None for node in nodes)


def test_it_has_no_feed() -> None:
    told: list[str] = []
    assert files.load("softmax-mnist-quick", ["launcher=distributor"], told.append).input == "read"
    assert told == ["implied by launcher=distributor: input=read"]
    unused: Any = None
    with pytest.raises(ValueError, match="has no feed"):
        distributor.DistributorLauncher().launch(unused, unused, unused, unused or object(), unused)  # type: ignore[arg-type]
