"""A large synthetic data set is made on the nodes, and trained on, through YARN and through Spark's own Workers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dlobd.run.generation import BELOW
from tests.cluster.conftest import warnings_of
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

LARGE = (
    "dataset=synthetic",
    "synthetic_shape=128x128x3",
    "train_samples=12000",
    "test_samples=200",
    "batch_size=100",
    "learning_rate=0.001",
    "min_accuracy=0",
    "block_size_mb=128",
    "input=read",
)
"""590 MB, in files of several blocks."""


@pytest.mark.parametrize("way", [("scheduler=yarn", "deploy_mode=cluster"), ("scheduler=standalone",)])
def test_a_large_data_set_is_made_on_the_nodes(dlobd: Any, way: tuple[str, ...]) -> None:
    """By a job of its own, whose processes stay small; the run's evidence is of the run alone, and the second run finds
    the data."""
    seed = f"seed={100 + len(way)}"  # a data set of its own
    ended = dlobd.run(*LARGE, *way, seed, within_s=500)
    assert ended.code == 0, ended.err
    assert "Spark generates data set synthetic on the nodes" in ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    assert warnings_of(run) == []
    verdicts = {one["code"]: one["verdict"] for one in run["checks"]}
    assert "fail" not in verdicts.values()
    assert verdicts["input-checksums"] == "pass", "HDFS has the checksums that the tasks computed"
    assert run["metrics"]["staged_bytes"] > 590e6
    if "deploy_mode=cluster" not in way:
        said = (ended.bundle.path / BELOW / "logs" / "driver.stdout").read_text()
        (peak,) = re.findall(r"peak of a Python worker: (\d+) bytes", said)
        assert int(peak) < 300e6
    again = dlobd.run(*LARGE, *way, seed, "epochs=2", within_s=500)
    assert again.code == 0
    assert "on the nodes" not in again.err
