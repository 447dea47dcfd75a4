"""CIFAR-10 on two launchers: models with statistics, files of several blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import warnings_of
from tests.cluster.test_ways import explained, losses

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SHORT = ("train_samples=1000", "test_samples=200", "epochs=1", "warmup_epochs=0", "min_accuracy=0", "block_size_mb=1")
"""Ten steps of ResNet-20, of files of two blocks each."""


def test_both_launchers_train_a_residual_network_alike(dlobd: Any) -> None:
    """TensorFlowOnSpark that is fed and exchanges by TensorFlow's collectives; and the barrier launcher whose ranks
    read, with a ring of dlobd's own: the same augmented batches, the same statistics, the same loss in every step; and
    all that can be audited agrees."""
    found = []
    for way in (("launcher=tfos", "input=feed"), ("launcher=barrier", "input=read", "exchange=ring")):
        sets = [word for setting in (*SHORT, *way) for word in ("--set", setting)]
        ended = dlobd("run", "resnet20-cifar10", *sets, "--out", str(dlobd.out), within_s=300)
        assert ended.code == 0, ended.err
        layers = explained(ended.bundle)
        assert ("channel" in layers) == ("exchange=ring" in way)
        run = ended.bundle.read_json()
        for use in run["exchange"]:
            assert use["calls"] == 10
            assert min(use[f"{part}_ns"] for part in ("pack", "wait_for_peers", "wire", "unpack")) > 0
        assert warnings_of(run) == []
        verdicts = {one["code"]: one["verdict"] for one in run["checks"]}
        assert "fail" not in verdicts.values()
        assert verdicts["input-checksums"] == "pass", "HDFS has the checksum of several blocks that was computed"
        for path, answer in json.loads((ended.bundle.evidence / "blocks.json").read_text()).items():
            assert len(answer["LocatedBlocks"]["locatedBlocks"]) > 1, path
        (epoch,) = run["epochs"]
        assert epoch["test_samples"] == 200
        assert epoch["loss"] == pytest.approx(sum(losses(ended.bundle)) / 10)
        assert "partial: 10,000 of 50,000 training" in " ".join(ended.out.split())
        found.append(losses(ended.bundle))
    fed, read = found
    assert len(fed) == 10
    assert fed == pytest.approx(read, rel=1e-3)
