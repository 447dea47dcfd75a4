"""Every valid combination of scheduler, launcher, input and deploy mode, run for real on the quick experiment."""

from __future__ import annotations

import pytest

from dlobd.trust.checks import RULES
from tests.cluster.conftest import warnings_of
from tests.cluster.deletions import unnoticed
from tests.cluster.test_ways import explained, same_training

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
WAYS += [("yarn", "distributor", "read", mode) for mode in ("client", "cluster")]
WAYS += [(scheduler, "distributor", "read", "client") for scheduler in ("standalone", "local-cluster")]
WAYS += [("none", "native", "read", "client")]


OF_YARN = {"application-time", "container-memory", "containers"}
OF_FEEDS = {"feed-put", "feed-taken", "input-read-by-spark"}
OF_SPARK = {"log-timestamps", "message-order", "task-run-time", "tasks"}
OF_SCRIPTS = {"python-times", "task-seconds"}  # of the user
OF_HDFS = {"files-written", "input-checksums", "input-sent-by-datanodes"}


def checked(scheduler: str, source: str) -> set[str]:
    apart = set() if source == "feed" else OF_FEEDS
    if scheduler != "yarn":
        apart = apart | OF_YARN
    if scheduler == "none":
        apart = apart | OF_SPARK | OF_HDFS
    return {rule.code for rule in RULES} - OF_SCRIPTS - apart


@pytest.mark.parametrize(("scheduler", "launcher", "source", "mode"), WAYS)
def test_a_valid_way_runs_and_is_explained(dlobd, quick_run, tmp_path, scheduler, launcher, source, mode) -> None:
    """It ends well, its parts sum exactly, 95 % is explained, every step has the loss of the main job's, and nothing
    that it left could be lacking without a word."""
    ended = dlobd.run(f"scheduler={scheduler}", f"launcher={launcher}", f"input={source}", f"deploy_mode={mode}")
    assert ended.code == 0, ended.err
    run = ended.bundle.read_json()
    assert warnings_of(run) == [], "all evidence could be had"
    assert [check for check in run["checks"] if check["verdict"] != "pass"] == []
    assert {check["code"] for check in run["checks"]} == checked(scheduler, source)
    layers = explained(ended.bundle)
    assert ("yarn" in layers) == (scheduler == "yarn")
    if scheduler == "yarn":  # also where the driver's lane holds it
        names = {row["layer"]: dict(row["names"]) for row in run["layers"]}
        assert names["yarn"]["register application"] > 0
    same_training(ended.bundle, quick_run.bundle)
    sampled = {process["role"] for process in run["resources"]["processes"] if process["cpu_ns"]}
    assert {"chief", "worker"} | ({"executor"} if scheduler != "none" else set()) <= sampled
    assert unnoticed(ended.bundle, tmp_path / "copies") == []
