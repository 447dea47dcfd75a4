"""The verdict of real sockets, links and processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.channel import Channel
from dlobd.fields import decoded, plain
from dlobd.network.verdict import byte_counts
from dlobd.network.verdict.evidence import (
    Snapshot,
    TransportEvidence,
    carried,
    own_sockets,
    tcp_socket,
)
from dlobd.network.verdict.probe import probe
from dlobd.network.verdict.rules import verdict
from tests.namespaces import Host, hosts


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        yield client, server


def name_of(end: socket.socket) -> str:
    """Return a socket's own address, as in evidence."""
    return f"127.0.0.1:{end.getsockname()[1]}"


def exchange(sender: socket.socket, receiver: socket.socket, size: int) -> None:
    thread = threading.Thread(target=sender.sendall, args=(bytes(size),))
    thread.start()
    left = size
    while left:
        left -= len(receiver.recv(1 << 16))
    thread.join()


def test_a_connections_own_counters_are_its_bytes(pair: tuple[socket.socket, socket.socket]) -> None:
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
    with socket.create_server(("::ffff:127.0.0.1", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
        server, _ = listener.accept()
        with client, server:
            assert (one := tcp_socket(server.fileno())) is not None
            assert one.peer == name_of(client)


def test_this_host_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    before = Snapshot.read()
    exchange(*pair, 2_000_000)
    after = Snapshot.read()
    assert "/net:[" in after.namespace
    assert after.home("127.0.0.1") == "lo"
    lo = after.since(before).interface("lo")
    assert lo.counts.sent_bytes >= 2_000_000
    assert decoded(Snapshot, json.loads(json.dumps(plain(after)))) == after


RANK = """
import json, os, socket, sys, threading, time
from dlobd.network.verdict.evidence import Snapshot
from dlobd.network.verdict.evidence import record
from dlobd.network.channels.base import Traffic

rank, size = int(sys.argv[1]), int(sys.argv[2])
deadline = time.monotonic() + 20
before = Snapshot.read()
if rank == 0:
    with socket.create_server(("10.79.0.1", 4711)) as listener:
        listener.settimeout(20)
        connection, _ = listener.accept()
else:
    while True:
        try:
            connection = socket.create_connection(("10.79.0.1", 4711), timeout=1)
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
def two() -> Iterator[list[Host]]:
    with hosts(2) as found:
        yield found


def ranks_in(places: list[Host], size: int, tmp_path: Path) -> list[TransportEvidence]:
    """Let two processes in network namespaces exchange bytes; return their evidence."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    ranks = [
        subprocess.Popen(
            [*host.command, sys.executable, str(script), str(rank), str(size)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for rank, host in enumerate(places)
    ]
    try:
        outputs = [process.communicate(timeout=40) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0, 0], [text.decode() for _, text in outputs]
    return [TransportEvidence.from_attrs(json.loads(out)) for out, _ in outputs]


def test_counters_of_a_link_agree_with_what_was_sent(two: list[Host], tmp_path: Path) -> None:
    """Within 1 % without headers, on both hosts and in both directions; the verdict is tcp over that link."""
    size = 20_000_000
    evidence = ranks_in(two, size, tmp_path)
    again = [sum(end.again_bytes for end in one.after.sockets or ()) for one in evidence]
    for one, sent_again, received_again in zip(evidence, again, reversed(again), strict=True):
        link = one.after.since(one.before).interface("eth1")
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


def test_two_ranks_of_one_host_use_loopback_by_any_address(two: list[Host], tmp_path: Path) -> None:
    evidence = ranks_in([two[0]] * 2, 2_000_000, tmp_path)
    link = evidence[0].after.since(evidence[0].before).interface("eth1")
    assert (link.counts.sent_bytes or 0) < 10_000
    plane = verdict("exchange", Channel.parse("tcp@eth1"), evidence)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence
    assert any("10.79.0.1 belongs to eth1" in line for line in plane.evidence)


def test_a_second_of_bytes_to_itself_is_proved_by_its_connections() -> None:
    evidence = TransportEvidence.from_attrs(probe("sockets", "tcp", "lo", 0.05))
    plane = verdict("transfer", Channel.parse("tcp@lo"), [evidence])
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "lo", True), plane.evidence
    assert evidence.traffic.sent_bytes == evidence.traffic.received_bytes > 0
    assert verdict("transfer", Channel.parse("rdma"), [evidence]).agrees is False


def test_the_probe_is_a_process_of_its_own_and_fails_in_one_line() -> None:
    command = [sys.executable, "-m", "dlobd.network.verdict.probe", "sockets", "tcp", "eth-none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1
    assert "no interface 'eth-none'" in done.stderr.splitlines()[-1]
