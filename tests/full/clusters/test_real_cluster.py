"""An external cluster: the nodes get Python's packages and Spark's jars from HDFS, and use nothing else.

The cluster is the tests' own, but the commands have another cache: nothing is found by the file system.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd import load_sweep
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.webhdfs import Client
from dlobd.run import packing
from tests.cluster.conftest import until, warnings_of
from tests.cluster.deletions import unnoticed
from tests.cluster.test_by_hand import prepared, small_archive, submitted
from tests.cluster.test_ways import explained, same_training
from tests.recorded import lines_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def tensorflow_paths(bundle: Bundle) -> list[str]:
    lines = [line for path in bundle.spans.glob("container_*/*") for line in lines_of(path)]
    found = [json.loads(line) for line in lines if '"TensorFlow imported"' in line]
    return [line["a"]["path"] for line in found]


OTHERWISE = ("page_cache=warm", "replication=2", "executor_cores=2", "executor_memory_mb=0", "executor_overhead_mb=0")
"""Knobs that say something to the cluster; none of them changes what is trained."""


@pytest.mark.parametrize(("mode", "knobs"), [("client", OTHERWISE), ("cluster", ())])
def test_the_packed_environment_is_what_runs(shared_cluster, alone, quick_run, tmp_path, mode, knobs) -> None:
    """The same training and a full explanation; TensorFlow and Spark come from what was unpacked in the containers.
    Nothing of what the cluster's own interfaces gave could be lacking without a word."""
    # the first run of both unpacks 1.9 GB before its ApplicationMaster starts
    sets = [word for knob in (f"deploy_mode={mode}", "accept_timeout_s=600", *knobs) for word in ("--set", knob)]
    conf = str(shared_cluster.client_conf_dir)
    ended = alone("run", "softmax-mnist-quick", *sets, "--hadoop-conf", conf, "--out", str(alone.out), within_s=800)
    assert ended.code == 0, ended.err
    assert "yarn" in explained(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    assert unnoticed(ended.bundle, tmp_path / "copies") == []
    paths = tensorflow_paths(ended.bundle)
    assert len(paths) == 2
    assert all("/environment/lib/python3." in path and sys.prefix not in path for path in paths), paths
    for container in (ended.bundle.logs / "containers").iterdir():
        # the NodeManager, which we started, hands its own PATH on
        lines = (container / "launch_container.sh").read_text().splitlines()
        launch = [line for line in lines if not line.startswith("export PATH=")]
        assert any("__spark_libs__" in line for line in launch)
        assert not [line for line in launch if f"{sys.prefix}/" in line]
    entries = {path.name for path in alone.cache.iterdir()} - {"daemons", ".lock"}  # the fixture lends `daemons`
    assert entries == {"packed", "remote", "runs", "submitted"}, "no cluster of our own"
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert run["setup"]["upload_ns"] > 0
    assert "cluster_up_ns" not in run["setup"]
    # both modes have used the same two archives, each uploaded once
    client = Client(shared_cluster.endpoints.webhdfs_url, shared_cluster.user, timed=False)
    train_dir = json.loads((ended.bundle.evidence / "job.json").read_text())["train_dir"]
    assert client.status(f"{train_dir}/part-00000.tfrecord")["replication"] == (2 if knobs else 1)
    kinds = sorted(name.rpartition("-")[0] for name in client.list(f"/user/{shared_cluster.user}/dlobd/cache"))
    assert kinds == ["environment", "spark-libs"]


FOREIGN = Path(__file__).parents[2] / "foreign"


def test_own_scripts_and_a_sweep_share_what_nodes_got(shared_cluster, alone, tmp_path) -> None:
    archive = small_archive(tmp_path / "own.tar.gz", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    there = ["--hadoop-conf", str(shared_cluster.client_conf_dir), "--archive", str(archive), "--out", str(alone.out)]
    script, uploads = str(FOREIGN / "word_count.py"), []
    for words in (
        ("run", "--job", script, "--set", "deploy_mode=cluster", *there, "--", "400"),
        ("submit", *there, "--", "spark-submit", "--conf", "spark.sql.shuffle.partitions=2", script, "400"),
    ):
        ended = alone(*words, within_s=400)
        assert ended.code == 0, ended.err
        layers = explained(ended.bundle)
        assert layers["user"] > 0
        assert layers["yarn"] > 0
        uploads.append(ended.err.count("uploading "))
        outputs = [ended.bundle.logs / "driver.stdout", *(ended.bundle.logs / "containers").glob("*_000001/stdout")]
        assert "BROWN" in "".join(path.read_text() for path in outputs if path.exists())
    swept = tmp_path / "inputs.toml"
    swept.write_text('extends = "softmax-mnist-quick"\nlauncher = "barrier"\n[axes]\ninput = ["feed", "read"]\n')
    sweep = alone("sweep", str(swept), "--repeats", "1", *there, within_s=600)
    assert sweep.code == 0, sweep.err
    runs = load_sweep(next(alone.out.glob("series-*.json")))
    assert sorted(zip(runs.input, runs.status, strict=True)) == [("feed", "ok"), ("read", "ok")]
    uploads.append(sweep.err.count("uploading "))
    assert uploads[0] > 0
    assert uploads[1:] == [0, 0]
    assert sweep.err.count("connecting to the cluster") == 1


@pytest.fixture
def aggregating(jars: Path) -> Iterator[EmbeddedCluster]:
    """A cluster that moves containers' logs into HDFS and removes them from the nodes."""
    with tempfile.TemporaryDirectory(prefix="dl-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        cluster = EmbeddedCluster(ClusterSettings(Path(directory) / "cluster", log_aggregation=True))
        cluster.start(lambda line: None)
        yield cluster
        cluster.stop()


def test_aggregated_logs_of_a_client_mode_run(aggregating, alone, quick_run, tmp_path) -> None:
    """By hand in client mode: the driver's own files lie in the prepared bundle, the containers' come from HDFS."""
    archive = small_archive(tmp_path / "own.tar.gz", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    line, bundle = prepared(alone, aggregating.client_conf_dir, archive)
    application = submitted(line, tmp_path)
    conf = str(aggregating.client_conf_dir)
    ended = alone("collect", "latest", "--hadoop-conf", conf, "--out", str(alone.out))
    assert ended.code == 0, ended.err
    assert ended.bundle.path == bundle.resolve()
    local = f"nodemanager-*/userlogs/{application}/*"
    until(lambda: not list(aggregating.work_dir.glob(local)), 60, "the NodeManagers remove what they moved into HDFS")
    explained(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    run = json.loads((bundle / "run.json").read_text())
    assert warnings_of(run) == []
    assert len(list((bundle / "logs" / "containers").glob("container_*/jvm.log"))) == 3
    starts = [event["event"] for event in run["startup"]]
    assert starts.index("driver Python up") < starts.index("application submitted") < starts.index("AM registered")


def test_nodes_without_the_python_are_one_line(shared_cluster, alone, tmp_path) -> None:
    """What the packed environment's launcher says where a node lacks its interpreter is the cause of the run."""
    launcher = packing._LAUNCHER.format(python="python3.99", origin="/nowhere/python3.99")
    words = ["--hadoop-conf", str(shared_cluster.client_conf_dir)]
    words += ["--archive", str(small_archive(tmp_path / "own.tar.gz", launcher))]
    ended = alone("run", "softmax-mnist-quick", *words, "--out", str(alone.out), within_s=300)
    assert ended.code == 5, ended.err
    assert "has no python3.99" in ended.said[-1]
