"""The exchanges that tests/cluster does not run, in real jobs."""

from __future__ import annotations

import pytest

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.cluster.test_exchanges import has_a_channel
from tests.cluster.test_ways import same_training

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


def test_halving_and_doubling_over_grpc_through_tensorflowonspark(dlobd, quick_run) -> None:
    ended = dlobd.run("exchange=halving-doubling", "channel.library=grpc")
    assert ended.code == 0, ended.err
    has_a_channel(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)


def test_mpi_under_spark(dlobd, quick_run) -> None:
    """The reference: MPICH's all-reduce, whose ranks meet by the driver, without mpiexec. It does not count what it
    carries, but the kernel does."""
    ended = dlobd.run("launcher=barrier", "exchange=mpi")
    assert ended.code == 0, ended.err
    has_a_channel(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)


def test_tensorflows_parameter_servers_under_spark(dlobd, quick_run) -> None:
    """Through TensorFlowOnSpark; both ranks serve. The gRPC servers of TensorFlow have a verdict of their own."""
    ended = dlobd.run("exchange=tf-ps", "exchange.servers=2")
    assert ended.code == 0, ended.err
    run = has_a_channel(ended.bundle)
    same_training(ended.bundle, quick_run.bundle)
    assert {plane["plane"] for plane in run["transport"]} == {"exchange", "tensorflow-grpc", "spark", "hdfs"}


def test_asynchronous_parameter_servers_under_spark(dlobd) -> None:
    """Through TensorFlowOnSpark. What a rank waits for in its wire is a server's lane, and no rank's."""
    ended = dlobd.run("exchange=ps-async", "exchange.servers=2")
    assert ended.code == 0, ended.err
    run = has_a_channel(ended.bundle, waits=False)
    assert "loss-equal" not in {check["code"] for check in run["checks"]}
    trace = assemble(Evidence(ended.bundle.path))
    waits = [span for span in trace.spans if span.name in (kinds.PUSH, kinds.PULL)]
    assert len(waits) == 2 * 30 * 2 * 2  # ranks, steps, servers, a push and a pull
    for span in waits:
        assert span.waits_for in [(kinds.server_lane(server, int(span.lane[-1])),) for server in range(2)]
    assert {span.lane for span in trace.spans if span.process.role == "ps"} == {
        kinds.server_lane(server, rank) for server in range(2) for rank in range(2)
    }
    exchanges = [span for span in trace.spans if span.layer == "channel" and span.name == kinds.EXCHANGE]
    assert len(exchanges) == 60
    assert {span.rendezvous for span in exchanges} == {""}
    assert run["metrics"]["test_accuracy"] > 0.75
