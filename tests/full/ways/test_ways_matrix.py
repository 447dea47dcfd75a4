"""Every valid combination of scheduler, launcher, input and deploy mode, run for real on the quick experiment."""

from __future__ import annotations

import pytest
from cluster.test_ways import explained, same_training

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

SPARK_LAUNCHERS = ("tfos", "tfos-stock", "barrier")
INPUTS = ("feed", "read")
WAYS = [
    ("yarn", launcher, source, mode)
    for launcher in SPARK_LAUNCHERS
    for source in INPUTS
    for mode in ("client", "cluster")
]
WAYS += [
    (scheduler, launcher, source, "client")
    for scheduler in ("standalone", "local-cluster")
    for launcher in SPARK_LAUNCHERS
    for source in INPUTS
]
WAYS += [("none", "native", "read", "client")]


@pytest.mark.parametrize(("scheduler", "launcher", "source", "mode"), WAYS)
def test_a_valid_way_runs_and_is_explained(dlobd, quick_run, scheduler, launcher, source, mode) -> None:
    """It ends well, its parts sum exactly, 95 % is explained, and every step has the loss of the main job's."""
    ended = dlobd.run(f"scheduler={scheduler}", f"launcher={launcher}", f"input={source}", f"deploy_mode={mode}")
    assert ended.code == 0, ended.err
    assert ended.bundle.read()["warnings"] == [], "all evidence could be had"
    layers = explained(ended.bundle)
    assert ("yarn" in layers) == (scheduler == "yarn")
    same_training(ended.bundle, quick_run.bundle)
