"""spark-tensorflow-distributor as published: what is added only records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.attribution.importers import recorder
from dlobd.experiment import files
from dlobd.job.launchers import distributor
from dlobd.job.launchers.base import Node, Roles

WORKER = """
import sys
from dlobd import tracing
from dlobd.job.launchers import distributor
tracing.start(sys.argv[1], "python-worker")
distributor.install()
assert "pyspark" not in sys.modules
from pyspark import BarrierTaskContext
class Context(BarrierTaskContext):
    _conn_info, _secret = 1, "s"
    def __init__(self): pass
    __new__ = object.__new__
import pyspark.taskcontext
pyspark.taskcontext._load_from_socket = lambda *asked: ["h:1", "h:2"]
print(BarrierTaskContext.allGather(Context(), "h:1"))
tracing.flush()
"""


def test_the_all_gather_is_recorded_and_unchanged(tmp_path: Path) -> None:
    """With the address that the rank gives, as a rendezvous of all ranks."""
    done = subprocess.run([sys.executable, "-c", WORKER, str(tmp_path)], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, "['h:1', 'h:2']\n"), done.stderr
    (file,) = tmp_path.iterdir()
    process = recorder.read(file)
    assert process is not None
    (span,) = process.named("all-gather addresses")
    assert (span.layer, span.attrs["address"]) == ("launcher", "h:1")
    assert '"rendezvous":"all-gather addresses"' in file.read_text()
    assert span.wait["cause_period_ns"] == 1_000_000_000


def test_a_rank_gets_its_place_from_the_distributors_own_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chief is the distributor's worker 0; all ranks have the addresses in one order."""
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
    """Said before anything is submitted; and a job that came so far all the same is refused."""
    told: list[str] = []
    assert files.load("softmax-mnist-quick", ["launcher=distributor"], told.append).input == "read"
    assert told == ["implied by launcher=distributor: input=read"]
    unused: Any = None
    with pytest.raises(ValueError, match="has no feed"):
        distributor.DistributorLauncher().launch(unused, unused, unused, Roles(), unused or object(), 1, unused)  # type: ignore[arg-type]
