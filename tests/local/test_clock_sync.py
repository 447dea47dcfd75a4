"""Message pairs between clocks, with real processes in real time namespaces, so that the shift is known exactly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from dlobd.evidence.alignment import Alignment
from dlobd.evidence.timestamp import error_of
from dlobd.tracing import clock, clock_sync
from dlobd.tracing.clock_offset import Exchange, Offset
from dlobd.tracing.clock_sync import VARIABLE, Peer, Server, peer
from tests import timens
from tests.recorded import read_all

SECOND_NS = 10**9
EXCHANGES = 250
GENEROUS_NS = 20_000_000
"""A message over loopback that takes longer was not delivered by this machine but by its neighbours."""


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server("127.0.0.1")
    yield found
    found.close()


def asked(server: Server) -> Peer:
    """The server as a client sees it; a peer of another domain, so that it is asked at all."""
    return Peer(**json.loads(server.environment[VARIABLE]))


def width_ns(pair: Exchange) -> int:
    return (pair.received_a_ns - pair.sent_a_ns) - (pair.sent_b_ns - pair.received_b_ns)


FORKS = """
import hmac, os, random, select, sys, threading, time
from dlobd.tracing import clock_sync

asked = clock_sync.Peer(**clock_sync.json.loads(os.environ[clock_sync.VARIABLE]))

def worker(end):
    # as in a Python worker: its recorder asks from a thread, and TensorFlowOnSpark's manager is forked meanwhile
    threading.Thread(target=asked.exchange, daemon=True).start()
    time.sleep(random.random() * 0.001)
    told, tell = os.pipe()
    if not (child := os.fork()):
        hmac.new(b"key", b"challenge", "md5").digest()  # what multiprocessing's authentication does
        os.write(tell, b"+")
        os._exit(0)
    in_time = select.select([told], [], [], 5)[0]
    if not in_time:
        os.kill(child, 9)
    os.waitpid(child, 0)
    os.write(end, b"+" if in_time else b"-")
    os._exit(0)

for _ in range(int(sys.argv[1])):
    told, tell = os.pipe()
    if not (child := os.fork()):
        worker(tell)
    os.close(tell)
    print(end=os.read(told, 1).decode(), flush=True)
    os.close(told)
    os.waitpid(child, 0)
"""


def test_a_process_forked_during_an_exchange_can_authenticate(server: Server) -> None:
    command = [sys.executable, "-c", FORKS, "500"]
    environment = {**os.environ, **server.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == 500 * "+"


@pytest.mark.parametrize("seconds", [5000, -1])
def test_the_shift_of_another_time_namespace_is_inside(
    server: Server, seconds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hundreds of exchanges over loopback: the shift lies in each one's interval, and in that of all, which is
    narrower than most."""
    command = [*timens.ahead(seconds), sys.executable, "-m", "analysis.studies.clock_client", str(EXCHANGES)]
    done = subprocess.run(
        command, env={**os.environ, **server.environment}, capture_output=True, text=True, timeout=110, check=True
    )
    domain, *lines = map(json.loads, done.stdout.splitlines())
    assert domain != clock.domain()
    pairs = [Exchange(*line) for line in lines]
    assert len(pairs) >= 200
    shift_ns = -seconds * SECOND_NS
    for pair in pairs:
        assert pair.sent_b_ns - pair.received_a_ns <= shift_ns <= pair.received_b_ns - pair.sent_a_ns
    offset = Offset(pairs)
    assert offset.steps == ()
    for pair in pairs:
        found = offset.at(pair.sent_a_ns)
        assert found.lo_ns <= shift_ns <= found.hi_ns
    widths = [width_ns(pair) for pair in pairs]
    assert 0 < median(widths) < GENEROUS_NS
    assert min(offset.at(pair.sent_a_ns).width_ns for pair in pairs) <= median(widths)
    with capsys.disabled():
        print(f"\n{len(pairs)} exchanges over loopback: median width {median(widths) / 1e3:.1f} us")


RECORDS = """
import sys, time
from dlobd import spans as kinds, tracing
wall_ns = time.time_ns
tracing.start(sys.argv[1], "python-worker")
with tracing.span(kinds.SpanKind("before", "tensorflow")):
    tracing.past(kinds.SpanKind("long ago", "spark"), time.monotonic_ns() - 10**9, time.monotonic_ns())
    time.sleep(1.2)
if len(sys.argv) > 2:
    time.time_ns = lambda: wall_ns() + int(sys.argv[2])  # our own reader: nobody else's clock is touched
with tracing.span(kinds.SpanKind("after", "tensorflow")):
    time.sleep(1.2)
"""


def test_a_process_of_another_namespace_is_placed_by_its_messages(server: Server, tmp_path: Path) -> None:
    """The recorder exchanges at the start, meanwhile and at the end; all its times are then off by less than is said,
    although its wall clock was set an hour ahead meanwhile, which is seen."""
    here = clock.anchor()
    command = [*timens.ahead(5000), sys.executable, "-c", RECORDS, str(tmp_path), str(3600 * SECOND_NS)]
    subprocess.run(command, env={**os.environ, **server.environment}, timeout=110, check=True)
    (own,) = read_all(tmp_path)
    (moved,) = read_all(tmp_path)
    assert len(own.exchanges) >= 2 * clock_sync.BURST
    assert {domain for domain, _ in own.exchanges} == {clock.domain()}
    alignment = Alignment([here], [moved])
    moved = alignment.process(moved)
    assert alignment.moved == set(), "nothing was placed by a wall clock"
    assert alignment.clocks[own.domain].offset.steps == ()
    assert [span.name for span in moved.spans] == ["before", "long ago", "after"]
    for before, after in zip(own.spans, moved.spans, strict=True):
        for was_ns, is_ns in ((before.start_ns, after.start_ns), (before.end_ns, after.end_ns)):
            assert 0 < error_of(is_ns) < GENEROUS_NS
            assert abs(is_ns - (was_ns - 5000 * SECOND_NS)) <= error_of(is_ns)
    assert here.monotonic_ns < moved.spans[0].start_ns < moved.spans[-1].end_ns < clock.monotonic_ns()
    assert 3599 * SECOND_NS < clock.stepped_ns(own.anchors) < 3601 * SECOND_NS


def test_a_wall_clock_that_is_set_moves_nothing_of_ones_own_domain(server: Server, tmp_path: Path) -> None:
    here = clock.anchor()
    command = [sys.executable, "-c", RECORDS, str(tmp_path), str(-3600 * SECOND_NS)]
    subprocess.run(command, env={**os.environ, **server.environment}, timeout=110, check=True)
    (own,), (same,) = read_all(tmp_path), read_all(tmp_path)
    assert own.exchanges == []
    alignment = Alignment([here], [same])
    moved = alignment.process(same)
    assert [*moved.spans] == [*own.spans]
    assert replace(moved, spans=own.spans) == own
    assert (alignment.clocks, alignment.moved) == ({}, set())
    assert -3601 * SECOND_NS < clock.stepped_ns(own.anchors) < -3599 * SECOND_NS


def test_one_clock_is_told_by_its_domain(server: Server) -> None:
    assert peer(server.environment) is None
    place = json.loads(server.environment[VARIABLE])
    assert peer({VARIABLE: json.dumps(place | {"domain": "elsewhere"})}) == replace(asked(server), domain="elsewhere")
    assert peer({}) is None
    for damaged in ("", "{}", "[1]", "{", json.dumps({"host": "127.0.0.1"})):
        assert peer({VARIABLE: damaged}) is None


def test_only_who_knows_the_secret_is_answered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_sync, "TIMEOUT_S", 0.05)
    assert replace(asked(server), secret="another").exchange() == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        noise.settimeout(0.05)
        for message in (b"", b"x", bytes(48), bytes(512)):
            noise.sendto(message, (server.host, server.port))
        with pytest.raises(TimeoutError):
            noise.recv(512)
    monkeypatch.setattr(clock_sync, "TIMEOUT_S", 5)
    assert len(asked(server).exchange()) == clock_sync.BURST


def test_an_answer_of_somebody_else_is_not_believed() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as false:
        false.bind(("127.0.0.1", 0))
        host, port = false.getsockname()

        def answer() -> None:
            question, sender = false.recvfrom(512)
            false.sendto(question[:16] + bytes(16) + bytes(32), sender)

        liar = threading.Thread(target=answer)
        liar.start()
        assert Peer(host, port, "secret", "elsewhere").exchange() == []
        liar.join()


def test_a_server_that_is_gone_costs_one_short_wait(server: Server) -> None:
    there = asked(server)
    server.close()
    assert there.exchange() == []
    server.close()  # twice is as good as once


def test_it_listens_on_one_address_only() -> None:
    server = Server("127.0.0.2")
    try:
        assert server.host == "127.0.0.2"
        assert replace(asked(server), host="127.0.0.1").exchange() == []
    finally:
        server.close()
    with pytest.raises(OSError, match="assign"):
        Server("192.0.2.1")
