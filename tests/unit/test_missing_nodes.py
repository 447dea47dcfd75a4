"""Waits for nodes and executors that never register have a name."""

from __future__ import annotations

import json
from pathlib import Path

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.bundle import files
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.captured import copy_of


def span_of(path: Path, kind: str) -> Span:
    return next(span for span in assemble(Evidence(path)).spans if span.lane == "driver" and span.kind == kind)


def test_a_wait_for_nodes_that_never_register_ends_with_tensorflowonsparks_timeout(tmp_path: Path) -> None:
    path = copy_of("quick-run", tmp_path)
    before = span_of(path, kinds.AWAIT_RESERVATIONS)
    spans = next((path / "spans" / "driver").iterdir())
    missing = {"nodes": 3, "registered": 2, "executors": 2}
    instant = {"k": "i", "n": kinds.NODES_MISSING, "t": before.end_ns - 1, "a": missing}
    spans.write_text(spans.read_text() + json.dumps(instant) + "\n")
    after = span_of(path, kinds.AWAIT_RESERVATIONS)
    assert after.cause_kind is kinds.RESERVATION_TIMEOUT
    assert (after.waits_for, after.released_ns) == (before.waits_for, before.released_ns)
    assert before.released_ns is not None
    assert after.cause_period_ns == before.end_ns - before.released_ns


def test_a_wait_for_executors_that_never_register_ends_with_sparks_timeout(tmp_path: Path) -> None:
    path = copy_of("quick-run", tmp_path)
    log = path / files.DRIVER_STDERR
    ready = "after reached minRegisteredResourcesRatio: 1.0"
    assert ready in log.read_text()
    log.write_text(log.read_text().replace(ready, "after waiting maxRegisteredResourcesWaitingTime: 120000000000(ns)"))
    span = span_of(path, kinds.WAIT_FOR_EXECUTORS)
    assert span.cause_kind is kinds.EXECUTORS_TIMEOUT
    assert span.released_ns is not None
    assert span.cause_period_ns == span.end_ns - span.released_ns
