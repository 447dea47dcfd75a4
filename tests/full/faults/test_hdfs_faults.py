"""HDFS that fails before a run or in the middle of it: daemons killed or stopped, safe mode, no room.

What the run survives it survives, and says so in its warnings. What it does not survive ends in bounded time, with one
line that names HDFS's daemon or HDFS's own words.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from dlobd.faults import sigstop
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.state import read_state
from dlobd.paths import spark_home
from dlobd.process_id import ProcessId

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

LONG = "epochs=200"
"""Of 30 steps: minutes, unless something ends it."""

SOME = "epochs=20"
"""Long enough to be hit while it trains, short enough to be waited for."""

END_S = 300
"""Within which a run has to end after HDFS has failed it. The deadlines of single requests are 20 and 60 s."""


def consistent(ended: Any) -> dict[str, Any]:
    """The record of a run whose parts sum to its wall and whose ranks have taken steps."""
    record: dict[str, Any] = ended.bundle.read_json()
    assert ended.bundle.verify() == []
    assert sum(layer["ns"] for layer in record["layers"]) + record["unattributed_ns"] == record["wall_ns"] > 0
    assert "first step done" in [event["event"] for event in record["startup"]]
    return record


def failed(ended: Any) -> dict[str, Any]:
    """The record of a run that failed while it trained."""
    assert ended.code == 5, ended.err
    record = consistent(ended)
    assert record["status"] == "failed"
    assert ended.line == f"dlobd: run failed: {record['reason']}"
    return record


def daemon(dlobd: Any, name: str) -> ProcessId:
    state = read_state(dlobd.work_dir)
    assert state
    return state.alive()[name]


def administer(cluster: EmbeddedCluster, jars: Path, *words: str) -> None:
    class_path = f"{cluster.client_conf_dir}:{spark_home() / 'jars'}/*:{jars}/*"
    java = str(cluster.java.home / "bin" / "java")
    subprocess.run(
        [java, "-cp", class_path, "org.apache.hadoop.hdfs.tools.DFSAdmin", *words],
        check=True,
        capture_output=True,
        timeout=120,
    )


def holder(dlobd: Any, path: str) -> str:
    """The DataNode that has a file's only block: its daemon's name."""
    state = read_state(dlobd.work_dir)
    assert state
    ports = {plan.name: plan.ports["http"] for plan in state.daemons if plan.kind in ("namenode", "datanode")}
    url = f"http://127.0.0.1:{ports['namenode']}/webhdfs/v1{path}"
    answer = requests.get(url, {"op": "GET_BLOCK_LOCATIONS", "offset": 0, "length": 1 << 30}, timeout=20).json()
    (block,) = answer["LocatedBlocks"]["locatedBlocks"]
    (location,) = block["locations"]
    return next(name for name, port in ports.items() if port == location["infoPort"])


# ---- daemons that die


def test_a_datanode_that_dies_is_survived_where_blocks_have_two_replicas(alone: Any) -> None:
    """Input, checkpoints and model come from and go to the other one; the run is good, and warns."""
    started = alone.start_run(SOME, "replication=2")
    started.trains()
    daemon(alone, "datanode-0").kill(signal.SIGKILL)
    ended = started.ended(END_S)
    assert ended.code == 0, ended.err
    warnings = consistent(ended)["warnings"]
    assert "datanode-0 died during the run" in warnings
    assert any(
        re.fullmatch(
            r"the DataNode at 127\.0\.0\.1:\d+ (refused|closed) the connection: "
            r"\d+ reads and writes used another DataNode",
            line,
        )
        for line in warnings
    ), warnings


@pytest.mark.parametrize("way", ["feed", "read"])
def test_a_datanode_that_dies_with_the_only_replica_fails_the_run(alone: Any, way: str) -> None:
    started = alone.start_run(LONG, f"input={way}")
    started.trains()
    job = json.loads((alone.newest().path / "evidence" / "job.json").read_text())
    path = f"{job['train_dir']}/part-00001.tfrecord"
    name = holder(alone, path)
    daemon(alone, name).kill(signal.SIGKILL)
    cause = failed(started.ended(END_S))["reason"]
    assert re.match(rf"{name} \(127\.0\.0\.1:\d+\) died during the job: ", cause)
    assert f"{job['train_dir']}/part-0000" in cause


def test_a_namenode_that_dies_fails_the_run(alone: Any) -> None:
    """Checkpoints and done-markers have nowhere to go; the line names the NameNode and the rank that missed it."""
    started = alone.start_run(LONG)
    started.trains()
    daemon(alone, "namenode").kill(signal.SIGKILL)
    record = failed(started.ended(END_S))
    # the rank's own words, or those of the DataNode that was writing its checkpoint
    assert re.match(r"namenode \(127\.0\.0\.1:\d+\) died during the job: rank 0 \(chief\): ", record["reason"])
    assert re.search(
        "refused the connection|Connection refused|Connection reset|EOFException|closed the connection",
        record["reason"],
    )
    assert "namenode died during the run" in record["warnings"]


# ---- daemons that hang


@pytest.fixture
def stopped(dlobd: Any) -> Iterator[Any]:
    """Stops a daemon of the shared cluster until the test's end."""
    with ExitStack() as stack:

        def stop(name: str) -> None:
            process = daemon(dlobd, name)
            assert stack.enter_context(sigstop.stopped(lambda: [process]))

        yield stop


def test_a_namenode_that_hangs_is_said_before_anything_is_submitted(dlobd: Any, stopped: Any) -> None:
    """One line after 20 s, and no bundle."""
    stopped("namenode")
    ended = dlobd.run(within_s=120)
    assert ended.code == 4
    assert re.fullmatch(
        r"dlobd: HDFS refused to store the data set: the NameNode at 127\.0\.0\.1:\d+ did not answer within 20 s "
        r"Next: check `dlobd cluster status`",
        ended.line,
    )
    assert dlobd.bundles() == []


def test_a_namenode_that_hangs_while_the_job_trains_fails_the_run(dlobd: Any, stopped: Any) -> None:
    started = dlobd.start_run(LONG)
    started.trains()
    stopped("namenode")
    record = failed(started.ended(END_S))
    assert re.fullmatch(
        r"rank 0 \(chief\): Unreachable: the NameNode at 127\.0\.0\.1:\d+ did not answer within 20 s", record["reason"]
    )


def test_a_datanode_that_hangs_is_survived_where_blocks_have_two_replicas(dlobd: Any, stopped: Any) -> None:
    """Ranks that read for themselves wait for it once, then take the other replica; the run is good, and warns."""
    # each epoch is read anew; checkpoints would hold the ranks until the NameNode has given the DataNode up
    started = dlobd.start_run(LONG, "replication=2", "input=read", "checkpoint_every_steps=1000000")
    started.trains()
    stopped("datanode-0")
    ended = started.ended(END_S)  # a minute for the read, and a minute until writes leave it out
    assert ended.code == 0, ended.err
    warnings = consistent(ended)["warnings"]
    for words in (
        r"the DataNode at 127\.0\.0\.1:\d+ did not answer within 60 s: \d+ reads and writes .*",
        r"datanode-0 \(127\.0\.0\.1:\d+\) stopped responding: writes waited for it until the NameNode declared it dead",
    ):
        assert any(re.fullmatch(words, line) for line in warnings), warnings


# ---- writes that HDFS refuses


@pytest.fixture
def admin(shared_cluster: EmbeddedCluster, jars: Path) -> Iterator[Any]:
    """`admin(do, undo)`: two dfsadmin commands, the second of them at the test's end."""
    left: list[list[str]] = []

    def do(words: list[str], undo: list[str]) -> None:
        left.append(undo)
        administer(shared_cluster, jars, *words)

    yield do
    for words in left:
        administer(shared_cluster, jars, *words)


SAFE_MODE = (["-safemode", "enter"], ["-safemode", "leave"])


def quota(path: str) -> tuple[list[str], list[str]]:
    return ["-setSpaceQuota", "1024", path], ["-clrSpaceQuota", path]


def test_safe_mode_is_said_before_anything_is_submitted(dlobd: Any, admin: Any, quick_run: Any) -> None:
    admin(*SAFE_MODE)
    ended = dlobd.run()
    assert ended.code == 4
    assert re.match(r"dlobd: HDFS created no directory: .* Name node is in safe mode\.", ended.line)
    assert dlobd.bundles() == []


def test_a_quota_that_the_data_set_exceeds_is_said_before_anything_is_submitted(
    dlobd: Any, admin: Any, quick_run: Any
) -> None:
    admin(*quota("/dlobd/data"))
    ended = dlobd.run("seed=2001")
    assert ended.code == 4
    assert re.match(
        r"dlobd: HDFS refused to store the data set: The DiskSpace quota of /dlobd/data is exceeded: quota = 1024 B",
        ended.line,
    )
    assert dlobd.bundles() == []


def test_a_data_set_that_the_nodes_may_not_write_leaves_evidence(dlobd: Any, admin: Any, quick_run: Any) -> None:
    """HDFS's own sentence, though it was said in a container; the run is kept with that job's logs."""
    admin(*quota("/dlobd/data"))
    large = ("dataset=synthetic", "synthetic_shape=128x128x3", "train_samples=12000")
    ended = dlobd.run(*large, "deploy_mode=cluster")
    assert ended.code == 4
    cause = r"Data set synthetic was not generated: .*The DiskSpace quota of /dlobd/data is exceeded"
    assert re.match(f"dlobd: {cause}", ended.line)
    bundle = dlobd.newest()
    run = bundle.read_json()
    assert run["status"] == "failed"
    assert re.match(f"the run could not be completed: {cause}", run["reason"])
    assert bundle.verify() == []
    logs = [path for path in bundle.files() if path.startswith("logs/generation/logs/containers/")]
    assert any(path.endswith("_000001/stdout") for path in logs)
    assert dlobd("show", str(bundle.path)).code == 0


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (SAFE_MODE, r"rank 0 \(chief\): HdfsError: Cannot .*Name node is in safe mode\..*"),
        (quota("/dlobd/runs"), r"rank 0 \(chief\): HdfsError: The DiskSpace quota of /dlobd/runs is exceeded: .*"),
    ],
)
def test_writes_that_hdfs_refuses_while_the_job_trains_fail_the_run(
    dlobd: Any, admin: Any, words: tuple[list[str], list[str]], cause: str
) -> None:
    """The chief's next checkpoint cannot be written. Nor can its failure marker: its own record has the cause."""
    started = dlobd.start_run(LONG)
    started.trains()
    admin(*words)
    assert re.fullmatch(cause, failed(started.ended(END_S))["reason"])
