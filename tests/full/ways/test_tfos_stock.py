"""TensorFlowOnSpark as published."""

from __future__ import annotations

import pytest

from tests.cluster.test_ways import explained, same_training
from tests.recorded import lines_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


def test_tensorflowonspark_as_published(dlobd, quick_run) -> None:
    """It trains the same; its start-up shows what `tfos` saves: TensorFlow is imported in Python workers too."""
    ended = dlobd.run("launcher=tfos-stock", "input=read")
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    assert layers["launcher"] > 0
    texts = ["\n".join(lines_of(path)) for path in sorted(ended.bundle.spans.rglob("spans-*"))]
    before_trainer = [
        text for text in texts if 0 <= text.find('"n":"import tensorflow"') < text.find('"n":"start task"')
    ]
    assert len(before_trainer) == 2, "each executor's Python worker imports TensorFlow before its start task"
    assert '"n":"import tensorflow"' in "".join(lines_of(next((ended.bundle.spans / "driver").iterdir())))
