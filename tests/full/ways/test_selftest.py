"""The quick self-test on a real cluster, by the command line."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(880)]


def test_injected_delays_are_found_in_the_right_layer(alone) -> None:
    """Five runs with a delay at every point, and repetitions of hidden delays; every delay is found."""
    ended = alone("selftest", "--quick", "--json", "--out", str(alone.out), within_s=860)
    whole = json.loads(ended.out)
    wrong = [delay for delay in whole["delays"] if delay["verdict"] != "found" and not delay["repeated"]]
    assert not wrong
    assert not [run for run in whole["runs"] if set(run["missing"]) - set(run["repeated"])]
    assert len([run for run in whole["runs"] if not run["attempt"]]) == 5
    assert ended.code == 0, ended.err
    assert whole["ok"]
    assert whole["never_delayed"] == ["user"]
    assert {delay["layer"] for delay in whole["delays"]} == whole["confusion"].keys()
