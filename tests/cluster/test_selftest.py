"""Delays in real runs come back in the right layer: the self-test itself, as a person runs it."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(580)]


def test_injected_delays_are_found_in_the_right_layer(alone) -> None:
    """Five runs with a delay at every point; every delay was made, and at least 95 % of each is where it belongs."""
    ended = alone("selftest", "--quick", "--json", "--out", str(alone.out), within_s=560)
    whole = json.loads(ended.out)
    wrong = [one for one in whole["delays"] if not one["ok"]]
    assert not wrong
    assert not [run["missing"] for run in whole["runs"] if run["missing"]]
    assert len(whole["runs"]) == 5
    assert ended.code == 0, ended.err
    assert whole["ok"]
    assert whole["never_delayed"] == ["user"]
    assert {one["layer"] for one in whole["delays"]} == whole["confusion"].keys()
