"""Which network carries what: all planes on one of them, and one of them made slow."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.compose.cluster import FABRIC, MiniCluster

from .test_runs import in_network, plane, record

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

RATE_BIT_S = 50_000_000
HEADERS = 1514 / 1448
"""Ethernet's bytes of a full TCP segment with timestamps to those of its payload: what tc counts."""

TOLERANCE = 0.1
CHATTER = 0.02
"""The share of a run's bytes that the unused network may carry: ARP, DNS."""


def test_all_planes_on_fabric(project: MiniCluster) -> None:
    """One setting of the cluster moves HDFS and Spark; a run that asks for all planes agrees, and the counters of every
    container say so too. The other network then is asked for in vain."""
    cluster = project.with_(DLOBD_NETWORK="fabric")
    cluster.up()
    hosts = [("master", 1), ("worker", 1), ("worker", 2)]
    before = [cluster.sent_bytes(*host) for host in hosts]
    settings = ["launcher=barrier", "exchange=ring", f"channel=tcp@{FABRIC}", "planes=all"]
    ended = cluster.dlobd("softmax-mnist", *settings)
    assert ended.code == 0, ended.err
    bundle = cluster.bundle(ended)
    for name in ("exchange", "spark", "hdfs"):
        found = plane(bundle, name)
        assert (found["kind"], found["agrees"]) == ("tcp", True), found
        assert in_network(found["addresses"], FABRIC), found
    moved = [
        {network: count - earlier[network] for network, count in cluster.sent_bytes(*host).items()}
        for host, earlier in zip(hosts, before, strict=True)
    ]
    workers = moved[1:]
    assert sum(each["fabric"] for each in workers) > file_bytes(record(bundle)), moved
    assert all(each["lan"] < CHATTER * each["fabric"] for each in moved), moved
    elsewhere = cluster.dlobd("softmax-mnist-quick", "exchange=ring", "channel=tcp@10.77.11.0/24", "planes=all")
    assert elsewhere.code == 6, elsewhere.err
    assert "are not in 10.77.11.0/24" in elsewhere.out + elsewhere.err
    cluster.down("--volumes")


def file_bytes(run: dict[str, Any]) -> int:
    """What all ranks together read of HDFS at least: each training sample once an epoch, 784 pixels and more."""
    return int(run["metrics"]["train_samples"]) * 784 // 2  # a block may be on the reader's own host


def test_a_rate_limit_costs_what_it_must(project: MiniCluster) -> None:
    """The same job with fabric as fast as the machine, then with a limit: the wire takes longer by what the bytes need
    at that rate, the other layers do not change as much."""
    settings = [
        "launcher=barrier",
        "input=read",
        "exchange=ring",
        f"channel=tcp@{FABRIC}",
        "epochs=1",
        "min_accuracy=0",
    ]
    runs = []
    for limit in ("", f"{RATE_BIT_S // 1_000_000}mbit"):
        cluster = project.with_(FABRIC_RATE=limit)
        cluster.up()
        ended = cluster.dlobd("cifar10-quick", *settings)
        assert ended.code == 0, ended.err
        runs.append(record(cluster.bundle(ended)))
    free, limited = runs
    # two ranks of a ring: each sends all of its bytes once
    (sent_bytes,) = {use["bytes"] for use in limited["exchange"]}
    predicted_ns = sent_bytes * HEADERS * 8 * 1e9 / RATE_BIT_S
    grown_ns = [
        slow["wire_ns"] - fast["wire_ns"] for slow, fast in zip(limited["exchange"], free["exchange"], strict=True)
    ]
    assert grown_ns == pytest.approx([predicted_ns] * len(grown_ns), rel=TOLERANCE)
    layers = [{layer["layer"]: layer["ns"] for layer in run["layers"]} for run in runs]
    grown = {name: layers[1][name] - ns for name, ns in layers[0].items()}
    assert grown.pop("channel") == pytest.approx(predicted_ns, rel=TOLERANCE)
    assert all(ns < predicted_ns / 2 for ns in grown.values()), grown
    project.down("--volumes")


def test_a_rate_that_is_none(project: MiniCluster) -> None:
    ended = project.with_(FABRIC_RATE="fast").compose("up", "--detach", "--no-build", "--wait")
    assert ended.code != 0
    said = project.compose("logs", "--no-color", "master").out
    assert re.search(r"dlobd: FABRIC_RATE=fast.*1gbit", said), said
    project.down("--volumes")
