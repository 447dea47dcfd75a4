"""A job whose gradients go by UCX over TCP. UCX finds no route on loopback, so that the whole cluster, the job
and dlobd are in a network namespace with one more interface."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.cluster.test_exchanges import has_a_channel, record
from tests.cluster.test_ways import same_training
from tests.namespaces import INTERFACE, hosts

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("exchange", "servers"), [("ring", 1), ("ps", 2)])
def test_a_job_by_ucx(alone: Any, quick_run: Any, exchange: str, servers: int) -> None:
    """It trains the same; the connections of the ranks carried the bytes, and UCX says that they are its own."""
    with hosts(1) as (host,):
        there = dataclasses.replace(alone, host=host.command)
        settings = [f"exchange={exchange}", "channel.library=ucx", f"channel=tcp@{INTERFACE}"]
        ended = there.run(*settings, *([f"exchange.servers={servers}"] if servers > 1 else []))
        assert ended.code == 0, ended.err
        there.is_empty()  # before the namespace goes
    run = has_a_channel(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    (plane,) = [plane for plane in record(ended.bundle)["transport"] if plane["plane"] == "exchange"]
    assert any(f"ucx reports tcp/{INTERFACE}" in line for line in plane["evidence"]), plane
    assert any(host.address in line for line in [*plane["addresses"], *plane["evidence"]]), plane
    sent = {use["bytes"] for use in run["exchange"]}
    assert len(sent) == 1


def test_ucx_on_loopback_is_one_line(alone: Any) -> None:
    ended = alone.run("launcher=native", "input=read", "exchange=ring", "channel.library=ucx", "channel=tcp@lo")
    assert ended.code != 0
    assert "UCX" in ended.line or "ucx" in ended.line, ended.line
