"""Training that ends before its epochs do, and with it the feed of each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlobd.bundle.store import Bundle
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def results(bundle: Bundle) -> list[dict[str, Any]]:
    markers = json.loads((bundle.evidence / "markers.json").read_text())
    return [json.loads(markers[f"rank-{rank}.json"]) for rank in (0, 1)]


def no_task_failed(bundle: Bundle) -> None:
    (log,) = bundle.evidence.glob("event-log*")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    ended = [event["Job Result"]["Result"] for event in events if event["Event"] == "SparkListenerJobEnd"]
    assert ended
    assert set(ended) == {"JobSucceeded"}


def test_a_target_ends_a_fed_run(dlobd) -> None:
    """TensorFlowOnSpark's feed is terminated after the epoch that reached the accuracy: both ranks took the same steps,
    no Spark job failed, and it is explained where the time went, the evaluations between the epochs with it."""
    ended = dlobd.run("epochs=20", "evaluate_every_epochs=1", "target_accuracy=0.84", "min_accuracy=0.84")
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert layers["feed"] > 0
    chief, worker = results(ended.bundle)
    assert (chief["ended_by"], worker["ended_by"]) == ("target_accuracy", "target_accuracy")
    assert chief["losses"] == pytest.approx(worker["losses"], rel=1e-5)
    *before, last = [found["right"] / found["samples"] for found in chief["evaluations"]]
    assert last >= 0.84
    assert all(accuracy < 0.84 for accuracy in before)
    assert chief["steps"] == 30 * len(chief["evaluations"]) < 600
    no_task_failed(ended.bundle)


def test_time_ends_a_fed_run(dlobd) -> None:
    """The barrier launcher's pipe is closed in the middle of an epoch, after the same step on both ranks."""
    ended = dlobd.run("launcher=barrier", "epochs=10000", "max_seconds=3")
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    chief, worker = results(ended.bundle)
    assert (chief["ended_by"], worker["ended_by"]) == ("max_seconds", "max_seconds")
    assert chief["losses"] == pytest.approx(worker["losses"], rel=1e-5)
    assert max(chief["loop_ns"], worker["loop_ns"]) >= 3 * 10**9
    assert 0 < chief["steps"] < 300_000
    no_task_failed(ended.bundle)
