"""TensorFlowOnSpark as published."""

from __future__ import annotations

import pytest

from tests.cluster.test_ways import explained, same_training

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


def test_tensorflowonspark_as_published(dlobd, quick_run) -> None:
    """It trains the same; its start-up shows what `tfos` saves: TensorFlow is imported in Python workers too."""
    ended = dlobd.run("launcher=tfos-stock", "input=read")
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    assert layers["launcher"] > 0
    before_trainer = [
        path
        for path in sorted(ended.bundle.spans.rglob("spans-*.jsonl"))
        if 0 <= path.read_text().find('"n":"import tensorflow"') < path.read_text().find('"n":"start task"')
    ]
    assert len(before_trainer) == 2, "each executor's Python worker imports TensorFlow before its start task"
    assert '"n":"import tensorflow"' in next((ended.bundle.spans / "driver").iterdir()).read_text()
