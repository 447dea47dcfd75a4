"""Exchanges of dlobd's own in real jobs: the channel layer has a number, its parts, and a verdict."""

from __future__ import annotations

import json
import time
from typing import Any

import psutil
import pytest

from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.cluster.test_ways import explained, same_training
from tests.recorded import read_all

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PARTS = {"pack", "wait for peers", "wire", "unpack"}


def record(bundle: Bundle) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle.path / "run.json").read_text())
    return found


def has_a_channel(bundle: Bundle, waits: bool = True) -> dict[str, Any]:
    """The record of a run whose channel layer is measured by its parts, and whose transport is as asked."""
    assert explained(bundle)["channel"] > 0
    run = record(bundle)
    (channel,) = [layer for layer in run["layers"] if layer["layer"] == "channel"]
    expected = PARTS if waits else {"pack", "unpack"}
    assert {name for name, _ in channel["names"]} >= expected - {"wait for peers"}
    assert "channel" not in {item["layer"] for item in run["not_measured"]}
    (exchange,) = [plane for plane in run["transport"] if plane["plane"] == "exchange"]
    assert (exchange["kind"], exchange["interface"], exchange["agrees"]) == ("tcp", "lo", True), exchange
    assert [(use["role"], use["index"]) for use in run["exchange"]] == [("chief", 0), ("worker", 0)]
    for use in run["exchange"]:
        parts = ("pack", *(["wait_for_peers"] if waits else []), "wire", "unpack")
        assert waits == (use["wait_for_peers_ns"] is not None)
        inside_ns = sum(use[f"{name}_ns"] for name in parts)
        assert 0 < inside_ns <= use["exchange_ns"]
        assert use["calls"] == 30
        assert use["bytes"] > 0
        assert use["overlap"] == 0  # all ranks wait for it
    return run


def test_a_ring_over_sockets_under_spark(dlobd, quick_run) -> None:
    """It trains the same as TensorFlow's collectives; while it does, no rank listens on all interfaces."""
    started = dlobd.start_run("launcher=barrier", "exchange=ring")
    heard: dict[int, set[str]] = {}
    while started.process.poll() is None:
        for pid in ranks(started):
            heard.setdefault(pid, set()).update(listening(pid))
        time.sleep(0.2)
    ended = started.ended(150)
    assert ended.code == 0, ended.err
    run = has_a_channel(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    assert len(heard) == 2
    assert set().union(*heard.values()) <= {"127.0.0.1"}, heard  # they listen until all have met
    (exchange,) = [plane for plane in run["transport"] if plane["plane"] == "exchange"]
    listened = [address for address in exchange["addresses"] if address.startswith("sockets:")]
    assert len(listened) == 2
    assert all(address.startswith("sockets:127.0.0.1:") for address in listened)
    assert {plane["plane"]: plane["kind"] for plane in run["transport"]} == dict.fromkeys(
        ("exchange", "spark", "hdfs"), "tcp"
    )


def ranks(started: Any) -> set[int]:
    lines = [line for path in started.span_files() for line in path.read_text().splitlines()]
    told = [json.loads(line) for line in lines if line.startswith('{"k":"process"') and line.endswith("}")]
    return {process["pid"] for process in told if process["role"] in ("chief", "worker")}


def listening(pid: int) -> set[str]:
    """The addresses on which a process listens by TCP."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
        return {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    except psutil.Error:
        return set()


def test_parameter_servers_under_spark(dlobd, quick_run) -> None:
    """Two servers beside the two ranks, which train the same; their work for each rank has a lane, and none is left."""
    ended = dlobd.run("exchange=ps", "exchange.servers=2")
    assert ended.code == 0, ended.err
    has_a_channel(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    servers = [process for process in read_all(ended.bundle.path / "spans") if process.process.role == "ps"]
    assert sorted(process.process.index for process in servers) == [0, 1]
    for server in servers:
        barriers = 30 if server.process.index == 0 else 0
        assert len(server.named("sum")) == 30 + barriers  # each step
        assert not psutil.pid_exists(server.process.pid)
    lanes = {span.lane for span in assemble(Evidence(ended.bundle.path)).spans if span.process.role == "ps"}
    assert lanes == {f"ps-{server}/rank-{rank}" for server in range(2) for rank in range(2)}


def test_tensorflows_own_exchange_has_a_verdict_too(quick_run) -> None:
    """Its time lies inside of the steps, but the kernel has counted what its connections carried."""
    run = record(quick_run.bundle)
    planes = {plane["plane"]: plane for plane in run["transport"]}
    assert planes.keys() == {"exchange", "tensorflow-grpc", "spark", "hdfs"}
    assert (planes["exchange"]["kind"], planes["exchange"]["agrees"]) == ("tcp", True), planes["exchange"]
    assert run["exchange"] == []


def test_an_interface_that_is_not_there_is_one_line(alone) -> None:
    ended = alone.run("launcher=native", "input=read", "exchange=ring", "channel=tcp@eth77")
    assert ended.code == 5
    assert "This host has no interface 'eth77'" in ended.line
