"""The same job with its workers on two hosts: loopback addresses of this machine, a DataNode and a NodeManager each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.cluster.test_ways import explained, same_training

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(580)]

S = 10**9
HOSTS = ["127.0.0.2", "127.0.0.3"]
TOO_LARGE_FOR_ONE = "executor_overhead_mb=3072"
"""Two such executors do not fit into one NodeManager."""

CLOSED_SOON = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=40"

WAYS = [
    ("launcher=tfos", "input=feed", "deploy_mode=client"),
    ("launcher=barrier", "input=read", "deploy_mode=cluster"),
]


@pytest.fixture
def two_hosts(alone: Any) -> Iterator[Any]:
    up = alone("cluster", "up", "--hosts", ",".join(HOSTS), "--conf", CLOSED_SOON)
    assert up.code == 0, up.err
    yield alone
    assert alone("cluster", "down").code == 0


def test_workers_on_two_hosts(two_hosts: Any) -> None:
    """Executors, trainers and DataNodes use the address of their own host, with TensorFlowOnSpark and its driver beside
    dlobd as with the barrier launcher in the cluster; each step has the loss of plain processes on one host."""
    one_host = two_hosts.run("launcher=native", "input=read")
    assert one_host.code == 0, one_host.err
    for way in WAYS:
        ended = two_hosts.run(TOO_LARGE_FOR_ONE, *way)
        assert ended.code == 0, ended.err
        explained(ended.bundle)
        assert ended.bundle.read().platform["hadoop_settings"] == CLOSED_SOON
        assert max(slept_before_closing(ended.bundle), default=0) < 0.4 * S, "clients and DataNodes sleep for 40 ms"
        same_training(ended.bundle, one_host.bundle)
        evidence = Evidence(ended.bundle.path)
        assert executors(evidence) == HOSTS
        assert sorted(trainers(evidence)) == HOSTS
        served = {match for line in clienttrace(evidence) for match in re.findall(r"src: /(127\.[\d.]+):", line)}
        assert set(HOSTS) <= served, "both DataNodes served blocks at their own address"


def slept_before_closing(bundle: Bundle) -> list[int]:
    """Nanoseconds of each sleep of an HDFS client that may close its file later."""
    spans = assemble(Evidence(bundle.path)).spans
    return [span.end_ns - span.start_ns for span in spans if span.cause.startswith("HDFS client's close retry")]


def executors(evidence: Evidence) -> list[str]:
    """The addresses at which executors offer their blocks, as the driver noted them."""
    in_container = evidence.topology.driver_in_container
    path = f"containers/{evidence.containers[0]}/stderr" if in_container else "driver.stderr"
    log = (evidence.path / "logs" / path).read_text()
    return sorted(re.findall(r"Registering block manager \S+ with .* BlockManagerId\(\d+, (127[\d.]+),", log))


def trainers(evidence: Evidence) -> list[str]:
    spans = [span for process in evidence.processes for span in process.named("all-gather addresses")]
    if spans:
        return [str(span.attrs["address"]).partition(":")[0] for span in spans]
    logs = "".join(path.read_text() for path in (evidence.path / "logs" / "containers").glob("*/stderr"))
    (cluster,) = set(re.findall(r"cluster_spec = (\{.*?\})", logs))
    return re.findall(r"127\.[\d.]+", cluster)


def clienttrace(evidence: Evidence) -> list[str]:
    logs = (evidence.path / "logs" / "daemons").glob("*clienttrace.log")
    return [line for path in logs for line in path.read_text().splitlines()]


def test_hosts_by_the_environment_are_checked_before_anything_starts(alone: Any) -> None:
    """`dlobd run` reads them for a cluster of its own; an address that others could reach is refused."""
    ended = alone.run(DLOBD_HOSTS="127.0.0.2,192.168.0.1")
    assert ended.code == 2
    assert ended.line.startswith("dlobd: DLOBD_HOSTS: '192.168.0.1' is not a loopback address")
    assert {*os.listdir(alone.cache)} == {"daemons", ".lock"}, "only what the fixture laid there, and the lock"
