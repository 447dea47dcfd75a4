"""A long job, and a job with summed steps, on the embedded cluster: nothing is lost, and all parts are exact."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import trainers
from tests.cluster.conftest import warnings_of
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SETTINGS = ("exchange=ring", "input=read", "batch_size=16", "learning_rate=0.05", "checkpoint_every_steps=1000000")


def trained(dlobd: Any, *settings: str) -> Bundle:
    sets = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    ended = dlobd("run", "softmax-mnist", *sets, "--set", "timeout_s=900", "--out", str(dlobd.out), within_s=1100)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert warnings_of(run) == []
    verdicts = {check["code"]: check["verdict"] for check in run["checks"]}
    assert set(verdicts.values()) == {"pass"}, verdicts
    assert {"spans-read", "nesting", "collective-order", "steps-recorded"} <= verdicts.keys()
    assert run["overhead"]["lost_lines"] == 0
    verified = dlobd("verify", str(ended.bundle.path))
    assert verified.code == 0, verified.out
    return ended.bundle  # type: ignore[no-any-return]


def exchanged(run: dict[str, Any], steps: int) -> None:
    """Check each rank's exchange: all calls, all bytes, and parts within the whole."""
    for use in run["exchange"]:
        parts = [use[f"{part}_ns"] for part in ("pack", "wait_for_peers", "wire", "unpack")]
        assert use["calls"] == steps
        assert use["bytes"] % steps == 0
        assert 0 < sum(parts) < use["exchange_ns"]
        assert use["compute_ns"] > 0
    carried = {use["bytes"] for use in run["exchange"]}
    assert len(carried) == 1


def test_half_a_million_spans(dlobd: Any) -> None:
    bundle = trained(dlobd, "epochs=15")
    run = bundle.read_json()
    exchanged(run, 28_125)
    assert run["overhead"]["spans"] >= 500_000
    assert run["overhead"]["left_out"] == 0
    bytes_ = sum(path.stat().st_size for path in bundle.spans.rglob("*.gz"))
    assert 4 * bytes_ < run["overhead"]["span_bytes"] < 200 * run["overhead"]["spans"]
    assert not list(bundle.spans.rglob("*.jsonl"))


def test_summed_steps(dlobd: Any) -> None:
    bundle = trained(dlobd, "max_steps=1001", "record_every_steps=50")
    run = bundle.read_json()
    exchanged(run, 1001)
    whole = 21  # steps 0, 50, ... 1000
    assert run["overhead"]["left_out"] == 2 * 4 * (1001 - whole)
    for rank in trainers(Evidence(bundle.path).processes):
        assert len(rank.steps()) == 1001
        assert len(rank.named("exchange")) == len(rank.named("wait for peers")) == len(rank.named("pack")) == 1001
        assert len(rank.named("wire")) == len(rank.named("apply")) == whole
        assert {one.spans for one in rank.sums.values()} == {1001 - whole}
