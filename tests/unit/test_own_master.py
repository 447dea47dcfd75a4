"""A script that sets its own master: the topology follows its SparkContext."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.evidence.topology import Placement, Topology
from dlobd.experiment.own_job import from_dict
from dlobd.job.user.spark_settings import EXECUTOR_OPTIONS, leave_containers
from dlobd.recompute import computed as record
from dlobd.run.collect import workers
from tests.captured import Captured, copy_of, note_sizes

LOCAL_ID = "local-1795719540000"
JOB = {"script": "x.py"}


def with_master(tmp_path: Path, master: str) -> Path:
    path = copy_of("own-run", tmp_path)
    (spans,) = (path / "spans" / "driver").iterdir()
    spans.write_text(spans.read_text().replace('"master":"yarn"', f'"master":"{master}"'))
    return path


def local(tmp_path: Path, master: str) -> Path:
    """Return own-run as Spark writes it with a local master: no application of YARN, and tasks of executor `driver`."""
    path = with_master(tmp_path, master)
    lines = (path / files.DRIVER_STDERR).read_text().splitlines(keepends=True)
    yarn = re.compile(r"\b(?:yarn|cluster)\.\w+|Registered executor|Uploading resource|ipc\.")
    text = "".join(line for line in lines if not yarn.search(line))
    text = re.sub(r"executor \d+", "executor driver", text)
    application = json.loads((path / files.WINDOW).read_text())["application_id"]
    (path / files.DRIVER_STDERR).write_text(text.replace(application, LOCAL_ID))
    for name in (files.RM_APPLICATION, files.NM_CONTAINERS, f"{files.DAEMON_LOGS}/resourcemanager.log"):
        (path / name).unlink()
    shutil.rmtree(path / files.CONTAINER_LOGS)
    for directory in (path / "spans").glob("container_*"):
        shutil.rmtree(directory)
    for name in (files.WINDOW, files.EVENT_LOG, f"{files.DAEMON_LOGS}/namenode-audit.log"):
        (path / name).write_text((path / name).read_text().replace(application, LOCAL_ID))
    note_sizes(path)
    return path


def computed(path: Path) -> dict[str, Any]:
    return record.computed(Bundle(path), from_dict(Captured.stored("own-run")["configuration"])).to_json()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_the_rest_of_the_breakdown_stands_without_yarn(tmp_path: Path, master: str) -> None:
    found = computed(local(tmp_path, master))
    assert (found["status"], found["reason"]) == ("ok", None)
    assert [line for line in found["warnings"] if line.startswith("missing: ")] == []
    jobs = "Spark's jobs contain the time of your functions"
    assert f"the script set its master to {master}: YARN took no part; {jobs}" in found["warnings"]
    layers = {row["layer"]: row for row in found["layers"]}
    assert "yarn" not in layers
    assert sum(row["ns"] for row in layers.values()) + found["unattributed_ns"] == found["wall_ns"]
    assert {"job collect", "SparkContext"} <= {name for name, _ in layers["spark"]["names"]}


@pytest.mark.parametrize(
    ("masters", "deploy_mode", "scheduler", "placement", "own"),
    [
        (["yarn"], "client", "yarn", Placement.YARN_CLIENT, ""),
        (["local"], "client", "yarn", Placement.LOCAL, "local"),
        (["local-cluster[2,1,512]"], "client", "yarn", Placement.LOCAL_CLUSTER, "local-cluster[2,1,512]"),
        (["spark://nn:7077"], "client", "yarn", Placement.STANDALONE, "spark://nn:7077"),
        (["local[4]"], "cluster", "yarn", Placement.YARN_CLUSTER, "local[4]"),
        (["local[4]", "yarn"], "client", "yarn", Placement.YARN_CLIENT, ""),
        (["local[4]"], "client", "standalone", Placement.LOCAL, "local[4]"),
        (["spark://127.0.0.1:7077"], "client", "standalone", Placement.STANDALONE, ""),
        (["yarn"], "client", "standalone", Placement.YARN_CLIENT, "yarn"),
        ([], "client", "yarn", Placement.YARN_CLIENT, ""),
    ],
)
def test_the_placement_is_that_of_the_spark_context(
    masters: list[str], deploy_mode: str, scheduler: str, placement: Placement, own: str
) -> None:
    found = Topology.of({**JOB, "deploy_mode": deploy_mode, "scheduler": scheduler}, masters=masters)
    assert (found.placement, found.own_master) == (placement, own)


def test_in_cluster_mode_the_master_is_the_reason(tmp_path: Path) -> None:
    """Spark's ApplicationMaster fails any job whose SparkContext never registers with it, with exit code 13."""
    path = with_master(tmp_path, "local[2]")
    for name, new in ((files.JOB, {"deploy_mode": "cluster"}), (files.WINDOW, {"exit_code": 1})):
        (path / name).write_text(json.dumps(json.loads((path / name).read_text()) | new))
    found = computed(path)
    assert found["status"] == "failed"
    why = "in cluster mode Spark fails such a job; omit the master"
    assert found["reason"] == f"the script set its master to local[2]: {why}"


class Conf(dict[str, str]):
    def set(self, key: str, value: str) -> None:
        self[key] = value


OPTIONS = "-Xlog:gc:file=<LOG_DIR>/jvm.log -Dlog4j2.configurationFile=__spark_conf__/log4j2.properties -Da=b"


@pytest.mark.parametrize("master", ["local-cluster[2,1,512]", "spark://nn:7077", "yarn", "local", "local[2]"])
def test_executors_of_workers_log_in_their_own_directory(master: str) -> None:
    conf = Conf({"spark.master": master, EXECUTOR_OPTIONS: OPTIONS})
    leave_containers(conf, "/conf")
    changed = {
        EXECUTOR_OPTIONS: "-Xlog:gc:file=jvm.log -Dlog4j2.configurationFile=/conf/log4j2.properties -Da=b",
        "spark.executorEnv.LOG_DIRS": ".",
    }
    has_workers = master.startswith(("local-cluster", "spark:"))
    assert conf == {"spark.master": master, EXECUTOR_OPTIONS: OPTIONS} | (changed if has_workers else {})


def test_logs_of_workers_in_the_driver_are_collected(tmp_path: Path) -> None:
    ids = ("app-20261126104212-0000", "local-1795719540000", "app-20261126104412-0001", "app-20261126104512-0002")
    for application in ids[::2]:
        (tmp_path / "work" / application / "0").mkdir(parents=True)
        for name in ("spark.log", "spans-1-2.jsonl", "other.jar"):
            (tmp_path / "work" / application / "0" / name).write_text("x\n")
    missing = workers.copy_logs(tmp_path, ids, Bundle(tmp_path / "bundle"))
    there = {path.relative_to(tmp_path / "bundle") for path in (tmp_path / "bundle").rglob("*") if path.is_file()}
    expected = [f"{below}/executor_{key}" for key in ("0", "3.0") for below in ("logs/containers", "spans")]
    assert {str(path.parent) for path in there} == set(expected)
    assert missing == ["executors of app-20261126104512-0002: no log directory"]
