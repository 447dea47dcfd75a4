"""Every valid combination of scheduler, launcher, input and deploy mode, run for real on the quick experiment."""

from __future__ import annotations

import pytest
from cluster.conftest import warnings_of
from cluster.deletions import unnoticed
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
WAYS += [("yarn", "distributor", "read", mode) for mode in ("client", "cluster")]
WAYS += [(scheduler, "distributor", "read", "client") for scheduler in ("standalone", "local-cluster")]
WAYS += [("none", "native", "read", "client")]


ON_YARN = {
    "container memory",
    "containers",
    "application inside the window",
    "application's length",
    "application's record",
    "bytes of staged files",
    "collection after the window",
    "containers and their JVMs",
    "memory of executors",
    "memory that executors kept",
    "record and summary",
    "states in a row",
    "states of containers",
    "states of the application",
}
BY_SPARK = {
    "input bytes, Spark",
    "input splits",
    "bytes into the feed",
    "bytes through the feed",
    "order of blocks",
}
BY_HADOOP = {
    "input bytes, DataNodes",
    "input opens",
    "input file lengths",
    "input checksums",
    "files written",
    "own marks and the NameNode's log",
    "run time inside the task",
    "tasks",
    "own marks and Spark's log",
    "Spark's two logs",
    "lengths that Spark tells",
    "logs and lives of JVMs",
    "calls of the driver's JVM",
    "lines inside collections",
    "metrics of tasks",
    "order of lines",
    "order of messages",
    "spark-submit's JVM",
    "tasks at executors",
    "two stamps of a line",
    "written bytes",
    "calls of the NameNode",
    "closes of files",
    "reads from disk",
    "sums of stages",
    "times of Python workers",
    "numbers of collections",
    "collections in tasks",
}


def unknown(scheduler: str, launcher: str, source: str) -> set[str]:
    """The audits for which a way to run has no two sources; all others must pass."""
    # of a script of one's own; of evaluations between epochs, of which there are none
    found = {"script", "jobs of a script", "evaluations"}
    if not launcher.startswith("tfos") or source == "read":
        found.add("names and what they tell")  # TensorFlowOnSpark's queue has its own
    if scheduler == "none":
        return found | ON_YARN | BY_SPARK | BY_HADOOP
    found.add("exits of ranks")  # seen by the parent of native ranks
    if scheduler != "yarn":
        found |= ON_YARN
    return found | BY_SPARK if source == "read" else found


@pytest.mark.parametrize(("scheduler", "launcher", "source", "mode"), WAYS)
def test_a_valid_way_runs_and_is_explained(dlobd, quick_run, tmp_path, scheduler, launcher, source, mode) -> None:
    """It ends well, its parts sum exactly, 95 % is explained, every step has the loss of the main job's, and nothing
    that it left could be lacking without a word."""
    ended = dlobd.run(f"scheduler={scheduler}", f"launcher={launcher}", f"input={source}", f"deploy_mode={mode}")
    assert ended.code == 0, ended.err
    run = ended.bundle.read_json()
    assert warnings_of(run) == [], "all evidence could be had"
    verdicts = {one["audit"]: one["verdict"] for one in run["audits"]}
    assert [one for one in run["audits"] if one["verdict"] == "fail"] == []
    assert {name for name, verdict in verdicts.items() if verdict == "unknown"} == unknown(scheduler, launcher, source)
    layers = explained(ended.bundle)
    assert ("yarn" in layers) == (scheduler == "yarn")
    if scheduler == "yarn":  # also where the driver's lane holds it
        names = {row["layer"]: dict(row["names"]) for row in run["layers"]}
        assert names["yarn"]["register application"] > 0
    same_training(ended.bundle, quick_run.bundle)
    sampled = {process["role"] for process in run["resources"]["processes"] if process["cpu_ns"]}
    assert {"chief", "worker"} | ({"executor"} if scheduler != "none" else set()) <= sampled
    assert unnoticed(ended.bundle, tmp_path / "copies") == []
