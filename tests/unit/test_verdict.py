"""The transport that was used: constructed hosts, counters of the kernel, addresses of Spark and HDFS."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import files
from dlobd.channel import Channel
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.files import load
from dlobd.fields import plain
from dlobd.measures.transport import SPARK, planes, spark_addresses
from dlobd.network.verdict import byte_counts
from dlobd.network.verdict.evidence import (
    Counts,
    InterfaceCounts,
    Snapshot,
    TcpSocket,
    TransportEvidence,
    counted,
    record,
)
from dlobd.network.verdict.rules import plane_of_addresses, verdict
from dlobd.record.run import Plane
from tests.counter_trees import BYTES, CASES, Case, Host, connected, put, seen, traffic


def decided(case: Case, tmp_path: Path) -> Plane:
    return verdict("exchange", Channel.parse(case.asked), case.ranks(tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_on_constructed_hosts(case: Case, tmp_path: Path) -> None:
    plane = decided(case, tmp_path)
    found = (plane.kind, plane.agrees, plane.device, plane.interface, plane.soft)
    expected = (case.kind, case.agrees, case.device, case.interface, case.soft)
    assert found == expected, "\n".join((f"{case.name}: {found} instead of {expected}", *plane.evidence))


def test_without_evidence_or_channel_there_is_no_disagreement(tmp_path: Path) -> None:
    plane = verdict("exchange", Channel.parse("rdma@mlx5_0:1"), [])
    assert (plane.kind, plane.agrees, plane.disagreement()) == ("unknown", None, "")
    plane = verdict("exchange", None, CASES[0].ranks(tmp_path))
    assert (plane.kind, plane.agrees) == ("verbs", None)


def test_named_lines_state_addresses_and_disagreement(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.name == "tcp on one host")
    plane = decided(case, tmp_path)
    assert plane.addresses == ("10.0.0.1", "sockets:10.0.0.1:4711")
    assert any("10.0.0.1 belongs to eth0" in line and "over lo" in line for line in plane.evidence)
    (case,) = (case for case in CASES if case.name == "a network that one host did not use")
    assert decided(case, tmp_path).disagreement() == (
        "exchange: tcp@10.0.0.0/24 was requested, and tcp (eth0) was used: 10.3.0.2 is not in 10.0.0.0/24"
    )
    for number, case in enumerate(CASES):
        line = decided(case, tmp_path / str(number)).disagreement()
        assert bool(line) == (case.agrees is False), case.name
        assert "\n" not in line
        assert not line or case.asked in line


def test_connections_with_others_than_ranks_do_not_count(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.interface("lo", "127.0.0.1", 772, 65536)
    before = host.read()
    hdfs = [TcpSocket("127.0.0.1:40000", "127.0.0.1:9864", 2 * BYTES, 2 * BYTES)]
    ranks = [seen(rank, before, host.read(hdfs), "sysv/memory") for rank in (0, 1)]
    assert verdict("exchange", Channel.parse("shm"), ranks).kind == "shm"


def test_a_library_that_counts_nothing_is_judged_by_its_connections(tmp_path: Path) -> None:
    hosts = [Host(tmp_path / name, name) for name in ("a", "b")]
    for number, host in enumerate(hosts, 1):
        host.interface("eth0", f"10.0.0.{number}")
    before = [host.read() for host in hosts]
    ends = connected("10.0.0.1", "10.0.0.2")
    for host in hosts:
        host.move("eth0")
    ranks = [
        TransportEvidence.from_attrs(record(rank, "tensorflow", before[rank], after=host.read(ends[rank])))
        for rank, host in enumerate(hosts)
    ]
    plane = verdict("exchange", Channel.parse("tcp@eth0"), ranks)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "eth0", True)


def test_a_rank_that_ended_first_is_known_by_its_listening_address(tmp_path: Path) -> None:
    """The connections that the other rank saw count; those with HDFS do not."""
    hosts = [Host(tmp_path / name, name) for name in ("a", "b")]
    for number, host in enumerate(hosts, 1):
        host.interface("eth0", f"10.0.0.{number}")
        host.interface("lo", "127.0.0.1", 772, 65536)
    before = [host.read() for host in hosts]
    own = [TcpSocket("10.0.0.1:50", "10.0.0.1:4711", 900, 600), TcpSocket("10.0.0.1:4711", "10.0.0.1:50", 600, 900)]
    seen_by_the_first = [
        TcpSocket("10.0.0.2:60", "10.0.0.1:4711", 20, BYTES),
        TcpSocket("10.0.0.2:4712", "10.0.0.1:61", BYTES, 20),
        TcpSocket("10.0.0.2:62", "10.0.0.1:9866", 20, 9 * BYTES),
    ]
    for host in hosts:
        host.move("eth0")
        host.move("lo", 2_000)
    sockets = (own, seen_by_the_first)
    ranks = [
        TransportEvidence.from_attrs(
            record(
                rank,
                "tensorflow",
                before[rank],
                addresses=[f"10.0.0.{rank + 1}:{4711 + rank}"],
                after=host.read(sockets[rank]),
            )
        )
        for rank, host in enumerate(hosts)
    ]
    plane = verdict("exchange", Channel.parse("tcp@10.0.0.0/24"), ranks)
    assert (plane.kind, plane.agrees) == ("tcp", True), plane
    assert any(f"on b carried {BYTES + 20:,} bytes sent and {BYTES + 20:,} received" in line for line in plane.evidence)


def test_one_direction_is_not_enough(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.device("mlx5_0")
    before = host.read()
    put(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", 2 * BYTES)
    ranks = [seen(0, before, host.read(), "rc_mlx5/mlx5_0:1")]
    assert verdict("exchange", Channel.parse("rdma@mlx5_0:1"), ranks).agrees is False


def test_other_planes_are_judged_by_their_addresses(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.interface("eth0", "10.0.0.1")
    host.interface("ib0", "10.1.0.1", 32)
    seen_now = host.read()
    spark = plane_of_addresses("spark", Channel.parse("ipoib@ib0"), ["10.1.0.1"], [seen_now])
    assert (spark.kind, spark.interface, spark.agrees) == ("ipoib", "ib0", True)
    assert plane_of_addresses("hdfs", Channel.parse("ipoib@ib0"), ["10.0.0.1"], [seen_now]).agrees is False
    assert plane_of_addresses("hdfs", Channel.parse("ipoib@ib0"), ["10.9.9.9"], [seen_now]).kind == "unknown"
    assert plane_of_addresses("hdfs", None, ["10.0.0.1", "10.1.0.1"], [seen_now]).kind == "mixed"


@pytest.mark.parametrize(
    ("addresses", "kind", "agrees"),
    [
        (["10.77.2.1"], "tcp", True),
        (["10.77.2.1", "10.77.2.2"], "tcp", True),
        (["10.77.2.1", "10.0.0.2"], "tcp", False),
        (["10.77.2.1", "10.77.2.9"], "unknown", None),
        (["10.77.2.1", "10.9.9.9"], "unknown", False),
        (["10.77.2.1", "worker-1.fabric"], "unknown", None),
        (["localhost"], "tcp", False),
    ],
)
def test_addresses_of_other_planes_must_lie_in_the_network(
    tmp_path: Path, addresses: list[str], kind: str, agrees: bool | None
) -> None:
    first, second = Host(tmp_path / "a", "host-a"), Host(tmp_path / "b", "host-b")
    first.interface("lo", "127.0.0.1", 772, 65536)
    first.interface("eth1", "10.77.2.1")
    second.interface("eth0", "10.77.2.2")
    second.interface("eth1", "10.0.0.2")
    plane = plane_of_addresses("hdfs", Channel.parse("tcp@10.77.2.0/24"), addresses, [first.read(), second.read()])
    assert (plane.kind, plane.agrees) == (kind, agrees), plane.evidence
    assert not plane.disagreement() or plane.disagreement().endswith("is not in 10.77.2.0/24")


# ---- counters


@pytest.mark.parametrize(
    ("before", "after", "unit", "expected"),
    [
        (5, 9, 1, 4),
        (9, 9, 1, 0),
        (2**32 - 2, 3, 1, 5),
        (2**64 - 2, 3, 1, 5),
        (4 * (2**32 - 2), 12, 4, 20),
        (4 * (2**64 - 2), 12, 4, 20),
        (2**40, 7, 1, None),
        (1000, 7, 1, None),
        (2**32 - 1, 2**32 - 1, 1, None),
        (5, 4 * (2**32 - 1), 4, None),
        (None, 5, 1, None),
        (5, None, 1, None),
        (2**80, 5, 1, None),
    ],
)
def test_a_counter_wraps_or_is_unknown(before: int | None, after: int | None, unit: int, expected: int | None) -> None:
    assert counted(before, after, unit) == expected


def test_a_counter_that_is_missing_or_cached_is_not_zero(tmp_path: Path) -> None:
    empty = Snapshot("a", "net", 0, (), (), ())
    one = InterfaceCounts("eth0", 1, 1500, (), Counts(5, 5, 5, 5))
    with_it = dataclasses.replace(empty, interfaces=(one,))
    assert with_it.since(empty).interfaces[0].counts == Counts()
    assert empty.since(with_it).interfaces[0].counts == Counts()
    assert with_it.since(with_it).interfaces[0].counts == Counts(0, 0, 0, 0)
    host = Host(tmp_path)
    host.device("rxe0", "Ethernet", "eth0", soft=True)
    put(tmp_path / "sys/class/infiniband/rxe0/ports/1/hw_counters/lifespan", 30)
    before = host.read()
    assert host.read().at_ns - before.at_ns >= 30e6


def test_evidence_survives_json(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.interface("eth0", "10.0.0.1")
    host.device("rxe0", "Ethernet", "eth0", soft=True)
    sockets = connected("10.0.0.1", "10.0.0.2")[0]
    attrs = record(
        3, "ucx", host.read(), lanes=["tcp/eth0"], traffic=traffic("tcp"), addresses=["x"], after=host.read(sockets)
    )
    found = TransportEvidence.from_attrs(json.loads(json.dumps(attrs)))
    assert found == TransportEvidence.from_attrs(attrs)
    assert (found.rank, found.library, found.lanes, found.traffic) == (3, "ucx", ("tcp/eth0",), traffic("tcp"))
    assert found.after.sockets == tuple(sockets)


# ---- headers


def test_the_payload_of_a_roce_packet_follows_from_the_mtu() -> None:
    found = [byte_counts.roce_mtu_bytes(mtu) for mtu in (1500, 9000, 4200, 300, None)]
    assert found == [1024, 4096, 4096, None, None]


# ---- Spark and HDFS


DRIVER, EXECUTOR = "10.77.2.9", "dlobd-worker-1.dlobd-fabric"
"""In client mode Spark knows the driver by the address that dlobd gave it, executors by YARN's names of their hosts."""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    events = [
        {
            "Event": "SparkListenerBlockManagerAdded",
            "Block Manager ID": {"Executor ID": who, "Host": host, "Port": 7079},
        }
        for who, host in (("driver", DRIVER), ("1", EXECUTOR), ("2", "dlobd-worker-2.dlobd-fabric"))
    ]
    noted(tmp_path, files.EVENT_LOG, "".join(json.dumps(event) + "\n" for event in events))
    return tmp_path


def noted(bundle: Path, name: str, content: Any) -> None:
    path = bundle / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def client(tree: Path) -> dict[str, Any]:
    host = Host(tree, "edge")
    host.interface("eth0", "10.77.1.9")
    host.interface("eth1", DRIVER)
    return plain(host.read())


def spark(bundle: Path, asked: str = "tcp@10.77.2.0/24") -> Plane:
    experiment = load("softmax-mnist-quick", (f"channel={asked}", "exchange=ring", "planes=all"))
    found = planes(experiment, Evidence(bundle))
    assert found is not None
    (plane,) = (plane for plane in found if plane.plane == SPARK)
    return plane


def test_hosts_are_known_by_address_or_name(bundle: Path) -> None:
    assert spark_addresses(Evidence(bundle)) == (DRIVER, EXECUTOR, "dlobd-worker-2.dlobd-fabric")
    noted(bundle, files.HOSTS, {EXECUTOR: "10.77.2.3", "dlobd-worker-9.dlobd-fabric": "10.77.2.11"})
    assert spark_addresses(Evidence(bundle)) == ("10.77.2.3", DRIVER, "dlobd-worker-2.dlobd-fabric")
    noted(bundle, files.HOSTS, {EXECUTOR: DRIVER, "dlobd-worker-2.dlobd-fabric": "10.77.2.4"})
    assert spark_addresses(Evidence(bundle)) == ("10.77.2.4", DRIVER)


def test_the_clients_interfaces_make_the_drivers_address_known(bundle: Path, tmp_path: Path) -> None:
    noted(bundle, files.HOSTS, {EXECUTOR: DRIVER, "dlobd-worker-2.dlobd-fabric": DRIVER})
    plane = spark(bundle)
    assert (plane.kind, plane.interface, plane.agrees) == ("unknown", "", None)
    noted(bundle, files.CLIENT_INTERFACES, client(tmp_path / "tree"))
    plane = spark(bundle)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "eth1", True), plane.evidence
    assert f"{DRIVER} is an address of eth1" in plane.evidence
    assert spark(bundle, "tcp@10.77.1.0/24").agrees is False


@pytest.mark.parametrize("cut", ['{"host": "edge", "interf', "{}", "[]", "null", '{"sockets": null, "host": "edge"}'])
def test_truncated_interfaces_are_unknown(bundle: Path, cut: str) -> None:
    noted(bundle, files.HOSTS, {EXECUTOR: DRIVER, "dlobd-worker-2.dlobd-fabric": DRIVER})
    noted(bundle, files.CLIENT_INTERFACES, cut)
    assert spark(bundle).kind == "unknown"
