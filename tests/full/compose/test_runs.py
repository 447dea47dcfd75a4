"""Runs on the mini-cluster: three workers on hosts of their own, two networks, by the commands of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from tests.cluster.deletions import unnoticed
from tests.cluster.test_ways import explained
from tests.compose.cluster import FABRIC, LAN, MiniCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def record(bundle: Bundle) -> dict[str, Any]:
    return bundle.read_json()


def plane(bundle: Bundle, name: str) -> dict[str, Any]:
    (found,) = [each for each in record(bundle)["transport"] if each["plane"] == name]
    return found


def in_network(addresses: list[str], network: str) -> bool:
    """Whether all IPv4 addresses in these words are of a /24."""
    found = [match for text in addresses for match in re.findall(r"\d+\.\d+\.\d+\.\d+", text)]
    return bool(found) and all(address.startswith(network.rpartition(".")[0] + ".") for address in found)


def believable(bundle: Bundle, workers: int) -> dict[str, Any]:
    """A run on several hosts: it is ok, its parts sum, little is unexplained, no check fails, clocks are bounded."""
    layers, run = explained(bundle), record(bundle)
    assert all(layers[name] > 0 for name in ("yarn", "spark", "hdfs", "tensorflow"))
    assert "fail" not in {check["verdict"] for check in run["checks"]}, run["checks"]
    hosts = {process.process.host for process in Evidence(bundle.path).processes if process.process.role != "driver"}
    assert hosts == {f"dlobdtest-worker-{i}.dlobdtest-lan" for i in range(1, workers + 1)}
    clocks = [warning for warning in run["warnings"] if "has a different clock" in warning]
    assert len(clocks) == workers
    assert all(
        re.search(r"aligned by \d+ message pairs, with an error of at most \d+ us", warning) for warning in clocks
    ), clocks
    return run


@pytest.fixture(scope="module")
def main_job(cluster: MiniCluster) -> Bundle:
    """softmax-mnist with a rank on each of three hosts: two executors do not fit on one."""
    ended = cluster.dlobd("softmax-mnist", "workers=3")
    assert ended.code == 0, ended.err
    return cluster.bundle(ended)


def test_the_main_job_on_three_hosts(main_job: Bundle, tmp_path: Path) -> None:
    """TensorFlowOnSpark's own way; the verdict names the network that all hosts are on, and whose addresses. Nothing
    that came from the hosts could be lacking without a word."""
    run = believable(main_job, 3)
    assert unnoticed(main_job, tmp_path) == []
    assert [event["event"] for event in run["startup"]][-1] == "first step done"
    grpc = plane(main_job, "tensorflow-grpc")
    assert grpc["kind"] == "tcp"
    assert grpc["interface"]
    assert in_network(grpc["addresses"], LAN), grpc
    for name in ("spark", "hdfs"):
        assert plane(main_job, name)["kind"] == "tcp", plane(main_job, name)
        assert in_network(plane(main_job, name)["addresses"], LAN)


def test_the_same_job_by_an_exchange_of_ours_over_the_other_network(cluster: MiniCluster, main_job: Bundle) -> None:
    """Its gradients go over fabric, which the connections between the ranks prove; HDFS and Spark stay on lan."""
    ended = cluster.dlobd("softmax-mnist", "workers=3", "exchange=ring", f"channel=tcp@{FABRIC}")
    assert ended.code == 0, ended.err
    bundle = cluster.bundle(ended)
    run = believable(bundle, 3)
    exchange = plane(bundle, "exchange")
    assert (exchange["kind"], exchange["agrees"]) == ("tcp", True)
    assert in_network(exchange["addresses"], FABRIC), exchange
    assert in_network(plane(bundle, "hdfs")["addresses"], LAN)
    assert next(layer["ns"] for layer in run["layers"] if layer["layer"] == "channel") > 0
    assert run["metrics"]["last_loss"] == pytest.approx(record(main_job)["metrics"]["last_loss"], abs=1e-4)


@pytest.mark.parametrize(
    ("experiment", "workers", "launcher", "exchange", "network"),
    [
        ("cifar10-quick", 3, "tfos", "tf-ring", LAN),
        ("cifar10-quick", 2, "barrier", "halving-doubling", FABRIC),
        ("softmax-mnist-quick", 2, "tfos", "tf-ring", FABRIC),
        ("softmax-mnist-quick", 2, "tfos", "ring", LAN),
    ],
)
def test_jobs_over_both_networks(
    cluster: MiniCluster, experiment: str, workers: int, launcher: str, exchange: str, network: str
) -> None:
    """By TensorFlow's own exchange and by those of dlobd: the verdict names the network that was asked for."""
    settings = [f"workers={workers}", f"launcher={launcher}", f"exchange={exchange}", f"channel=tcp@{network}"]
    shorter = ["epochs=1", "train_samples=9900", "min_accuracy=0"] if experiment == "cifar10-quick" else []
    ended = cluster.dlobd(experiment, *settings, *shorter)
    assert ended.code == 0, ended.err
    bundle = cluster.bundle(ended)
    explained(bundle)
    found = plane(bundle, "exchange")
    assert (found["kind"], found["agrees"]) == ("tcp", True), found
    # of ranks on one host the bytes go over lo, from the address that was asked for
    assert in_network(found["addresses"], network), found


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_spark_submit_by_hand_and_collect(cluster: MiniCluster, deploy_mode: str) -> None:
    """The page's lines, in one shell on the edge: dlobd prints spark-submit's line, and collects what it left."""
    script = (
        f"set -e; dlobd run softmax-mnist-quick --by-hand --set deploy_mode={deploy_mode} > said;"
        ' sh -c "$(head -n 1 said)" > /dev/null; dlobd collect'
    )
    ended = cluster.edge("bash", "-c", script)
    assert ended.code == 0, ended.err
    run = record(cluster.bundle(ended))
    assert run["status"] == "ok", run["reason"]
    assert "startedTime" in run["window"]["name"]


def test_nobody_is_root_and_the_image_has_no_secret(cluster: MiniCluster) -> None:
    for service in ("master", "worker", "edge"):
        status = cluster.inside(service, "sh", "-c", "id -u; grep CapEff /proc/self/status").out.split()
        assert status == ["1000", "CapEff:", "0000000000000000"]
    history = cluster.engine.docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", "dlobd:latest").stdout
    assert not re.search(r"password|token|secret|https?://[^ /]*:[^ /]*@", history, re.IGNORECASE)


def test_web_pages_answer_on_loopback_only(cluster: MiniCluster, main_job: Bundle) -> None:
    """ResourceManager, NameNode, each NodeManager and Spark's history server, which knows the run."""
    import requests

    manager, namenode, history, *_ = cluster.ports
    nodes = [cluster.compose("port", "--index", str(i), "worker", "8042").out.strip() for i in (1, 2, 3)]
    pages = [(f"127.0.0.1:{manager}", "/ws/v1/cluster/info"), (f"127.0.0.1:{namenode}", "/jmx")]
    for address, path in [*pages, *((node, "/node") for node in nodes)]:
        assert requests.get(f"http://{address}{path}", timeout=10).ok
    published = cluster.compose("ps", "--format", "{{.Ports}}").out
    assert published.count("127.0.0.1:") == published.count("->"), published
    application = json.loads((main_job.path / "evidence" / "rm-app.json").read_text())["id"]
    listed = requests.get(f"http://127.0.0.1:{history}/api/v1/applications", timeout=30).json()
    assert application in {each["id"] for each in listed}


def test_an_image_of_another_version_is_refused(cluster: MiniCluster) -> None:
    change = "echo >> /tmp/dlobd/layers.py"
    ended = cluster.edge(
        "bash", "-c", f"cp -r /opt/dlobd/dlobd /tmp/dlobd && {change} && cd /tmp && python -m dlobd run softmax-mnist"
    )
    assert ended.code == 2, ended.err
    found = re.findall(r"dlobd (\S+\+[0-9a-f]{12}) at", ended.failure)
    assert len(set(found)) == 2, ended.failure
    assert "docker compose build" in ended.failure


def test_an_edge_that_cannot_reach_the_cluster(cluster: MiniCluster) -> None:
    wrong = cluster.with_(DLOBD_NETWORK="lan")
    command = "sed -i s/master.dlobdtest-lan/master.elsewhere/ $HADOOP_CONF_DIR/*.xml && dlobd run softmax-mnist"
    ended = wrong.edge("bash", "-c", command, within_s=90)
    assert ended.code == 4, ended.err
    assert "master.elsewhere" in ended.failure
    assert "does not answer" in ended.failure
