"""The verdict on constructed hosts, and the kernel's counters against real bytes."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from counter_trees import BYTES, CASES, Case, Host, connected, put, seen, traffic

from dlobd.channel import Channel
from dlobd.network.verdict import byte_counts
from dlobd.network.verdict.evidence import (
    Counts,
    InterfaceCounts,
    Snapshot,
    TcpSocket,
    TransportEvidence,
    carried,
    counted,
    own_sockets,
    record,
    tcp_socket,
)
from dlobd.network.verdict.probe import probe
from dlobd.network.verdict.rules import plane_of_addresses, verdict
from dlobd.record.run import Plane


def decided(case: Case, tmp_path: Path) -> Plane:
    """Return the verdict on a constructed case."""
    return verdict("exchange", Channel.parse(case.asked), case.ranks(tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_on_constructed_hosts(case: Case, tmp_path: Path) -> None:
    """Kind, device, interface, software device, and agreement."""
    plane = decided(case, tmp_path)
    found = (plane.kind, plane.agrees, plane.device, plane.interface, plane.soft)
    expected = (case.kind, case.agrees, case.device, case.interface, case.soft)
    assert found == expected, "\n".join((f"{case.name}: {found} instead of {expected}", *plane.evidence))


def test_a_disagreement_is_one_line(tmp_path: Path) -> None:
    """With both names; empty if they agree, or if the kind is unknown."""
    for number, case in enumerate(CASES):
        line = decided(case, tmp_path / str(number)).disagreement()
        assert bool(line) == (case.agrees is False), case.name
        assert "\n" not in line
        assert not line or case.asked in line


def test_without_evidence_nothing_is_known() -> None:
    """Neither kind nor agreement."""
    plane = verdict("exchange", Channel.parse("rdma@mlx5_0:1"), [])
    assert (plane.kind, plane.agrees, plane.disagreement()) == ("unknown", None, "")


def test_no_requested_channel_means_no_disagreement(tmp_path: Path) -> None:
    """The kind is known nevertheless."""
    plane = verdict("exchange", None, CASES[0].ranks(tmp_path))
    assert (plane.kind, plane.agrees) == ("verbs", None)


def test_bytes_between_ranks_of_one_host_go_over_lo(tmp_path: Path) -> None:
    """The evidence names the interface of the address."""
    (case,) = (case for case in CASES if case.name == "tcp on one host")
    plane = decided(case, tmp_path)
    assert plane.addresses == ("10.0.0.1", "sockets:10.0.0.1:4711")
    assert any("10.0.0.1 belongs to eth0" in line and "over lo" in line for line in plane.evidence)


def test_connections_with_others_than_ranks_do_not_count(tmp_path: Path) -> None:
    """A rank's traffic with HDFS says nothing about its gradients."""
    host = Host(tmp_path)
    host.interface("lo", "127.0.0.1", 772, 65536)
    before = host.read()
    hdfs = [TcpSocket("127.0.0.1:40000", "127.0.0.1:9864", 2 * BYTES, 2 * BYTES)]
    ranks = [seen(rank, before, host.read(hdfs), "sysv/memory") for rank in (0, 1)]
    assert verdict("exchange", Channel.parse("shm"), ranks).kind == "shm"


def test_a_library_that_counts_nothing_is_judged_by_its_connections(tmp_path: Path) -> None:
    """Such as TensorFlow's collectives."""
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


def test_a_rank_that_ended_first_is_known_by_where_it_listened(tmp_path: Path) -> None:
    """Its connections are gone when the last rank looks at its own: those that the first saw count, as they lead to
    where a rank listened, or come from a rank's host to where it did itself. Those with HDFS still do not."""
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
                rank, "tensorflow", before[rank],
                addresses=[f"10.0.0.{rank + 1}:{4711 + rank}"], after=host.read(sockets[rank]),
            )
        )
        for rank, host in enumerate(hosts)
    ]  # fmt: skip
    plane = verdict("exchange", Channel.parse("tcp@10.0.0.0/24"), ranks)
    assert (plane.kind, plane.agrees) == ("tcp", True), plane
    assert any(f"on b carried {BYTES + 20:,} bytes sent and {BYTES + 20:,} received" in line for line in plane.evidence)


def test_one_direction_is_not_enough(tmp_path: Path) -> None:
    """A device that only sent did not carry what was received."""
    host = Host(tmp_path)
    host.device("mlx5_0")
    before = host.read()
    put(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", 2 * BYTES)
    ranks = [seen(0, before, host.read(), "rc_mlx5/mlx5_0:1")]
    assert verdict("exchange", Channel.parse("rdma@mlx5_0:1"), ranks).agrees is False


def test_other_planes_are_judged_by_their_addresses(tmp_path: Path) -> None:
    """Spark's and HDFS's TCP is IPoIB if the address belongs to such an interface."""
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
    """Host names and addresses of unknown hosts are unknown; one outside disagrees."""
    first, second = Host(tmp_path / "a", "host-a"), Host(tmp_path / "b", "host-b")
    first.interface("lo", "127.0.0.1", 772, 65536)
    first.interface("eth1", "10.77.2.1")
    second.interface("eth0", "10.77.2.2")
    second.interface("eth1", "10.0.0.2")
    plane = plane_of_addresses("hdfs", Channel.parse("tcp@10.77.2.0/24"), addresses, [first.read(), second.read()])
    assert (plane.kind, plane.agrees) == (kind, agrees), plane.evidence
    assert not plane.disagreement() or plane.disagreement().endswith("is not in 10.77.2.0/24")


def test_addresses_outside_the_network_are_named(tmp_path: Path) -> None:
    """The interface's name would not help."""
    (case,) = (case for case in CASES if case.name == "a network that one host did not use")
    assert decided(case, tmp_path).disagreement() == (
        "exchange: tcp@10.0.0.0/24 was requested, and tcp (eth0) was used: 10.3.0.2 is not in 10.0.0.0/24"
    )


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
    """32 and 64 bits wrap; a reset, saturated or missing counter is unknown."""
    assert counted(before, after, unit) == expected


def test_an_interface_that_came_or_went_is_unknown() -> None:
    """Not 0."""
    empty = Snapshot("a", "net", 0, (), (), ())
    one = InterfaceCounts("eth0", 1, 1500, (), Counts(5, 5, 5, 5))
    with_it = dataclasses.replace(empty, interfaces=(one,))
    assert with_it.since(empty).interfaces[0].counts == Counts()
    assert empty.since(with_it).interfaces[0].counts == Counts()
    assert with_it.since(with_it).interfaces[0].counts == Counts(0, 0, 0, 0)


def test_evidence_survives_json(tmp_path: Path) -> None:
    """As in an instant of the recorder."""
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


def test_cached_counters_are_read_after_they_expire(tmp_path: Path) -> None:
    """The kernel caches them for `lifespan` milliseconds."""
    host = Host(tmp_path)
    host.device("rxe0", "Ethernet", "eth0", soft=True)
    put(tmp_path / "sys/class/infiniband/rxe0/ports/1/hw_counters/lifespan", 30)
    before = host.read()
    assert host.read().at_ns - before.at_ns >= 30e6


# ---- headers


def test_headers_are_added_and_removed() -> None:
    """Both ways agree for full packets; without an MTU the result is None."""
    for framing, mtu, payload in (("tcp", 1500, 1448), ("ipoib", 2044, 1992), ("roce", 1024, 1024)):
        wire = byte_counts.wire_bytes(10 * payload, framing, mtu)  # type: ignore[arg-type]
        assert wire is not None
        assert byte_counts.without_headers(wire, 10, framing) == 10 * payload  # type: ignore[arg-type]
        assert byte_counts.wire_bytes(10 * payload + 1, framing, mtu) == wire + 1 + (wire - 10 * payload) // 10  # type: ignore[arg-type]
    assert byte_counts.wire_bytes(1448, "tcp", 1500) == 1514
    assert byte_counts.wire_bytes(1448, "tcp", None) is None
    assert byte_counts.wire_bytes(1448, "tcp", 40) is None


def test_the_mtu_of_roce_follows_from_the_interface() -> None:
    """It is the largest size of InfiniBand that fits."""
    found = [byte_counts.roce_mtu_bytes(mtu) for mtu in (1500, 9000, 4200, 300, None)]
    assert found == [1024, 4096, 4096, None, None]


# ---- this machine


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        yield client, server


def name_of(end: socket.socket) -> str:
    """Return a socket's own address, as in evidence."""
    return f"127.0.0.1:{end.getsockname()[1]}"


def exchange(sender: socket.socket, receiver: socket.socket, size: int) -> None:
    """Send all bytes, for any size of the buffers."""
    thread = threading.Thread(target=sender.sendall, args=(bytes(size),))
    thread.start()
    left = size
    while left:
        left -= len(receiver.recv(1 << 16))
    thread.join()


def test_a_connections_own_counters_are_its_bytes(pair: tuple[socket.socket, socket.socket]) -> None:
    """To the byte, at both ends, with its addresses."""
    client, server = pair
    before = own_sockets()
    exchange(client, server, 3_000_001)
    after = own_sockets()
    assert before is not None
    assert after is not None
    (one,) = [one for one in carried(before, after) if one.local == name_of(client)]
    assert (one.sent_bytes, one.received_bytes) == (3_000_001, 0)
    assert one.peer == name_of(server)
    assert (other := tcp_socket(server.fileno())) is not None
    assert (other.sent_bytes, other.received_bytes) == (0, 3_000_001)


def test_other_descriptors_have_no_counters(tmp_path: Path) -> None:
    """A file, a listener, a datagram socket, a closed descriptor; none is leaked or closed."""
    count = len(os.listdir("/proc/self/fd"))
    with (
        open(tmp_path / "file", "w") as file,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(type=socket.SOCK_DGRAM) as datagram,
    ):
        assert [tcp_socket(one.fileno()) for one in (file, listener, datagram)] == [None] * 3
        listener.getsockname()
    assert tcp_socket(4000) is None
    assert len(os.listdir("/proc/self/fd")) == count


def test_a_default_timeout_makes_connections_unknown(pair: tuple[socket.socket, socket.socket]) -> None:
    """Python would make the library's socket non-blocking."""
    socket.setdefaulttimeout(5)
    try:
        assert own_sockets() is None
        assert tcp_socket(pair[0].fileno()) is None
    finally:
        socket.setdefaulttimeout(None)


def test_connections_of_ipv6_sockets_have_addresses_of_ipv4() -> None:
    """gRPC uses such sockets."""
    with socket.create_server(("::ffff:127.0.0.1", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
        server, _ = listener.accept()
        with client, server:
            assert (one := tcp_socket(server.fileno())) is not None
            assert one.peer == name_of(client)


def test_this_host_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    """Interfaces have addresses; loopback's counters include the sent bytes."""
    before = Snapshot.read()
    exchange(*pair, 2_000_000)
    after = Snapshot.read()
    assert "/net:[" in after.namespace
    assert after.home("127.0.0.1") == "lo"
    lo = after.since(before).interface("lo")
    assert lo is not None
    assert lo.counts.sent_bytes is not None
    assert lo.counts.sent_bytes >= 2_000_000
    assert Snapshot.from_json(json.loads(json.dumps(after.to_json()))) == after


RANK = """
import json, os, socket, sys, threading, time
from dlobd.network.verdict.evidence import Snapshot
from dlobd.network.verdict.evidence import record
from dlobd.network.channels.base import Traffic

rank, size = int(sys.argv[1]), int(sys.argv[2])
deadline = time.monotonic() + 20
before = Snapshot.read()
if rank == 0:
    with socket.create_server(("10.77.0.1", 4711)) as listener:
        listener.settimeout(20)
        connection, _ = listener.accept()
else:
    while True:
        try:
            connection = socket.create_connection(("10.77.0.1", 4711), timeout=1)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
connection.settimeout(20)
thread = threading.Thread(target=connection.sendall, args=(bytes(size),))
thread.start()
left = size
while left:
    left -= len(connection.recv(min(left, 1 << 18)))
thread.join()
connection.sendall(b"x")  # both have all: nothing more is under way
connection.recv(1)
traffic = Traffic("tcp", "", 1, size, 1, size, 0, 0)
attrs = record(rank, "sockets", before, traffic=traffic, addresses=[connection.getsockname()[0]])
connection.sendall(b"y")
connection.recv(1)
print(json.dumps(attrs))
"""


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a link between them."""
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and ip")
    names = f"dlobd-t{os.getpid()}a", f"dlobd-t{os.getpid()}b"

    def run(*words: str) -> None:
        subprocess.run([ip, *words], check=True, capture_output=True, timeout=20)

    try:
        for name in names:
            run("netns", "add", name)
            run("-n", name, "link", "set", "lo", "up")
        run("-n", names[0], "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", names[1])
        for number, name in enumerate(names, 1):
            run("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "eth1")
            run("-n", name, "link", "set", "eth1", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode().strip()}")
    else:
        yield names
    finally:
        for name in names:
            subprocess.run([ip, "netns", "delete", name], capture_output=True, timeout=20, check=False)


def ranks_in(places: tuple[str, str], size: int, tmp_path: Path) -> list[TransportEvidence]:
    """Let two processes in network namespaces exchange bytes; return their evidence."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    ranks = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, str(script), str(rank), str(size)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for rank, name in enumerate(places)
    ]
    try:
        outputs = [process.communicate(timeout=40) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0, 0], [text.decode() for _, text in outputs]
    return [TransportEvidence.from_attrs(json.loads(out)) for out, _ in outputs]


def test_counters_of_a_link_agree_with_what_was_sent(namespaces: tuple[str, str], tmp_path: Path) -> None:
    """Within 1 % without headers, on both hosts and in both directions; the verdict is tcp over that link."""
    size = 20_000_000
    evidence = ranks_in(namespaces, size, tmp_path)
    again = [sum(end.again_bytes for end in one.after.sockets or ()) for one in evidence]
    for one, sent_again, received_again in zip(evidence, again, reversed(again), strict=True):
        link = one.after.since(one.before).interface("eth1")
        assert link is not None
        counts = link.counts
        assert counts.sent_bytes is not None
        assert counts.received_bytes is not None
        assert counts.sent_packets is not None
        assert counts.received_packets is not None
        sent = byte_counts.without_headers(counts.sent_bytes, counts.sent_packets, "tcp")
        received = byte_counts.without_headers(counts.received_bytes, counts.received_packets, "tcp")
        # what TCP sent again, as the kernel was late or short of room, is on the link twice
        assert abs(sent / (size + sent_again) - 1) < 0.01
        assert abs(received / (size + received_again) - 1) < 0.01
    plane = verdict("exchange", Channel.parse("tcp@eth1"), evidence)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "eth1", True), plane.evidence
    assert verdict("exchange", Channel.parse("ipoib@eth1"), evidence).agrees is False
    assert verdict("exchange", Channel.parse("rdma@mlx5_0:1"), evidence).agrees is False


def test_two_ranks_of_one_host_use_loopback_by_any_address(namespaces: tuple[str, str], tmp_path: Path) -> None:
    """The link's counters do not move, and the evidence names the interface of the address."""
    evidence = ranks_in((namespaces[0], namespaces[0]), 2_000_000, tmp_path)
    link = evidence[0].after.since(evidence[0].before).interface("eth1")
    assert link is not None
    assert (link.counts.sent_bytes or 0) < 10_000
    plane = verdict("exchange", Channel.parse("tcp@eth1"), evidence)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence
    assert any("10.77.0.1 belongs to eth1" in line for line in plane.evidence)


def test_a_second_of_bytes_to_itself_is_proved_by_its_connections() -> None:
    """As doctor does over RDMA devices; here over loopback."""
    evidence = TransportEvidence.from_attrs(probe("sockets", "tcp", "lo", 0.05))
    plane = verdict("transfer", Channel.parse("tcp@lo"), [evidence])
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence
    assert evidence.traffic is not None
    assert evidence.traffic.sent_bytes == evidence.traffic.received_bytes > 0
    assert verdict("transfer", Channel.parse("rdma"), [evidence]).agrees is False


def test_the_probe_is_a_process_of_its_own_and_fails_in_one_line() -> None:
    """A missing device is not replaced by another."""
    command = [sys.executable, "-m", "dlobd.network.verdict.probe", "sockets", "tcp", "eth-none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "no interface 'eth-none'" in done.stderr.splitlines()[-1]
