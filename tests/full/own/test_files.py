"""The user's own model and data set through TensorFlowOnSpark: the files that the pages print, unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import warnings_of
from tests.cluster.test_ways import explained, losses
from tests.pages import printed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def test_an_own_model_learns_an_own_data_set(dlobd: Any, tmp_path: Path) -> None:
    """In containers, with a driver in one too. Nothing there finds the file but by its text; what the bundle says of
    it can be verified where the files are not. The DataNodes' blocks are dropped before."""
    model = printed("quickstart.md", "net.py", tmp_path)
    data = printed("quickstart.md", "stripes.py", tmp_path)
    ended = dlobd.run(
        f"model={model}:build",
        f"dataset={data}:Stripes",
        "train_samples=4000",
        "test_samples=1000",
        "deploy_mode=cluster",
        "input=read",
        "epochs=3",
        "min_accuracy=0.9",
        "page_cache=cold",
    )
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    assert warnings_of(run) == []
    staged = run["metrics"]["staged_bytes"]
    cache = run["page_cache"]
    assert (cache["resident_bytes"], cache["asked"]) == (0, "cold"), "the blocks lie on a disk"
    assert 0 < cache["total_bytes"] == cache["before_resident_bytes"] == staged, "they had just been written"
    found = losses(ended.bundle)
    assert found[-1] < found[0] / 2
    assert (ended.bundle.evidence / "model.py").read_text() == model.read_text()
    assert "fail" not in {one["verdict"] for one in run["checks"]}
    model.unlink()
    data.unlink()
    assert dlobd("verify", str(ended.bundle.path)).code == 0
    shown = dlobd("show", str(ended.bundle.path), "--full").out
    assert "net.py:build" in "".join(shown.split()), "the line may be broken anywhere"
