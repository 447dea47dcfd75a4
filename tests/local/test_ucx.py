"""Library ucx over shared memory, and over TCP between network namespaces.

What all libraries must do is in tests/local/test_channels.py.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd.channel import Channel
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.network.channels.base import ChannelError, Closed, DeadlinePassed, OutOfBounds, PeerClosed
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.channels.ucx import library, worker
from dlobd.network.channels.ucx.channel import UcxChannel
from dlobd.network.channels.ucx.worker import settings
from dlobd.network.verdict.rules import verdict
from tests.namespaces import INTERFACE, Host, hosts
from tests.ranks import PATIENCE_S, soon
from tests.ucx_ends import ASK, ECHO, end, met


@pytest.fixture
def link() -> Iterator[list[Host]]:
    with hosts(2) as made:
        yield made


def test_tcp_between_hosts_is_proved_by_their_interfaces(link: list[Host]) -> None:
    """Messages of all sizes, parts, put and get; the verdict follows from counters, not from UCX's report."""
    ends = [end(code, "tcp", INTERFACE, host) for code, host in zip((ECHO, ASK), link, strict=True)]
    evidence = met(ends)
    assert [one.lanes for one in evidence] == [(f"tcp/{INTERFACE}",)] * 2
    plane = verdict("exchange", Channel.parse(f"tcp@{INTERFACE}"), evidence)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", INTERFACE, True), "\n".join(plane.evidence)
    compared = [float(found) for line in plane.evidence for found in re.findall(r"([+-][\d.]+) %", line)]
    assert compared, plane.evidence
    assert all(abs(percent) <= 1.0 for percent in compared), plane.evidence


@pytest.mark.serial
def test_shared_memory_between_processes() -> None:
    evidence = met([end(code, "shm", "") for code in (ECHO, ASK)])
    assert all(lane.partition("/")[0] in ("posix", "sysv", "cma") for one in evidence for lane in one.lanes)
    plane = verdict("exchange", Channel.parse("shm"), evidence)
    assert (plane.kind, plane.agrees) == ("shm", True), plane.evidence


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_peer_that_is_killed_is_named(transport: str, request: pytest.FixtureRequest) -> None:
    places: Sequence[Host | None] = request.getfixturevalue("link") if transport == "tcp" else (None, None)
    device = INTERFACE if transport == "tcp" else ""
    dies = end("end = listening()\nprint('here', flush=True)\ntime.sleep(60)", transport, device, places[0])
    waits = end(
        """
        from dlobd.network.channels.base import PeerClosed
        end = connected()
        try:
            end.recv(bytearray(10), soon())
        except PeerClosed as error:
            print(error)
        channel.close()
        """,
        transport,
        device,
        places[1],
    )
    try:
        waits.stdin.write(dies.stdout.readline())
        waits.stdin.flush()
        assert dies.stdout.readline() == "here\n"
        began_s = time.monotonic()
        os.kill(dies.pid, signal.SIGKILL)
        out, errors = waits.communicate(timeout=PATIENCE_S)
        assert waits.returncode == 0, errors
        assert " is gone" in out
        assert time.monotonic() - began_s < PATIENCE_S / 2
    finally:
        for each in (dies, waits):
            each.kill()
            each.communicate()


@pytest.fixture
def ends() -> Iterator[tuple[Any, Any]]:
    here, there = UcxChannel(), UcxChannel()
    listener = there.listen()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(listener.accept, soon())
        one = here.connect(listener.address, soon())
        other = coming.result(PATIENCE_S)
    yield one, other
    here.close()
    there.close()


def test_one_sided_access_checks_bounds(ends: tuple[Any, Any]) -> None:
    one, other = ends
    memory = np.zeros(100, np.uint8)
    key = other.register(memory)
    with pytest.raises(OutOfBounds, match="101 bytes at offset 0 exceed the 100 bytes"):
        one.put(bytes(101), key, 0, soon())
    with pytest.raises(OutOfBounds, match="1 bytes at offset 100"):
        one.get(bytearray(1), key, 100, soon())
    with pytest.raises(OutOfBounds, match="-1"):
        one.get(bytearray(1), key, -1, soon())
    changed = key[:40] + bytes([key[40] ^ 1]) + key[41:]
    for wrong in (b"", b"x" * 10, key[:-1], changed, one.register(np.zeros(10, np.uint8))):
        with pytest.raises(OutOfBounds, match="registered no memory with this key"):
            one.put(b"x", wrong, 0, soon())
    assert not memory.any()
    one.put(b"end", key, 97, soon())
    one.flush(soon())
    assert memory[97:].tobytes() == b"end"


def test_both_ends_may_send_large_messages_at_once(ends: tuple[Any, Any]) -> None:
    size, rounds = 3_000_000, 5
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(lambda e=e: [e.send(bytes(size), soon()) for _ in range(rounds)]) for e in ends]
        got = [pool.submit(lambda e=e: [e.recv(bytearray(size), soon()) for _ in range(rounds)]) for e in ends]
        assert [one.result(PATIENCE_S) for one in got] == [[size] * rounds] * 2
        for one in sent:
            one.result(PATIENCE_S)


def test_messages_sent_before_close_arrive(ends: tuple[Any, Any]) -> None:
    one, other = ends
    one.send(b"last", soon())
    one.close()
    memory = bytearray(10)
    assert other.recv(memory, soon()) == 4
    with pytest.raises(PeerClosed):
        other.recv(memory, soon())


def test_an_abandoned_send_is_not_delivered(ends: tuple[Any, Any]) -> None:
    one, other = ends
    message, into = np.full(5_000_000, 1, np.uint8), np.zeros(5_000_000, np.uint8)
    began_s = time.monotonic()
    with pytest.raises(DeadlinePassed):
        one.send(message, began_s + 0.3)
    message[:] = 9
    with pytest.raises(PeerClosed, match="has abandoned a call"):
        other.recv(into, soon())
    with pytest.raises(PeerClosed, match=r"is unusable \(a call was abandoned"):
        one.send(b"next", soon())


@pytest.mark.parametrize("cut", ["send", "recv"])
def test_a_transfer_that_is_cut_ends_the_connection_at_both_ends(cut: str) -> None:
    code = """
        from dlobd.network.channels.base import DeadlinePassed, PeerClosed
        end, what = {how}(), {what!r}
        memory = np.ones(20_000_000, np.uint8)
        call = getattr(end, what)
        try:
            call(memory, time.monotonic() + 0.5 if what == {cut!r} else soon())
        except (DeadlinePassed, PeerClosed) as error:
            print(type(error).__name__)
        kept = memory.copy()
        try:
            call(memory, soon())
        except PeerClosed as error:
            print(error)
        time.sleep(0.2)
        print((kept == memory).all(), flush=True)
        channel.close()
        """
    with hosts(2, "100mbit") as made:
        both = [
            end(code.format(how=how, what=what, cut=cut), "tcp", INTERFACE, host)
            for how, what, host in (("listening", "recv", made[0]), ("connected", "send", made[1]))
        ]
        address = both[0].stdout.readline()
        said = [both[1].communicate(address, PATIENCE_S), both[0].communicate(timeout=PATIENCE_S)]
    assert [one.returncode for one in both] == [0, 0], said
    cutting, told = [out.splitlines() for out, _ in (said if cut == "send" else said[::-1])]
    assert (cutting[0], cutting[2]) == ("DeadlinePassed", "True"), said
    assert "is unusable (a call was abandoned" in cutting[1]
    assert (told[0], told[2]) == ("PeerClosed", "True"), said


def test_a_thread_that_makes_progress_wakes_the_receiver(
    ends: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "TICK_S", 10 * PATIENCE_S)  # nobody wakes by chance
    one, other = ends
    keys = [each.register(np.zeros(10, np.uint8)) for each in ends]
    assert all(keys)

    def echo() -> None:
        message = bytearray(8)
        for _ in range(100):
            other.recv(message, soon())
            other.send(message, soon())

    with ThreadPoolExecutor(1) as pool:
        echoing = pool.submit(echo)
        for _ in range(100):
            time.sleep(0.002)  # long enough for all to sleep
            one.send(b"8 bytes.", soon())
            assert one.recv(bytearray(8), soon()) == 8
        echoing.result(PATIENCE_S)


def test_memory_of_a_closed_owner_is_not_accessed(ends: tuple[Any, Any]) -> None:
    """Shared memory would still exist."""
    one, other = ends
    memory = np.zeros(100, np.uint8)
    key = other.register(memory)
    one.put(b"abc", key, 0, soon())
    one.flush(soon())
    other.close()
    for call in (lambda: one.put(b"late", key, 50, soon()), lambda: one.get(bytearray(4), key, 0, soon())):
        with pytest.raises(PeerClosed):
            call()
    with pytest.raises(PeerClosed):
        one.flush(soon())
    assert not memory[50:].any()


def test_a_channel_may_close_while_a_connection_is_made() -> None:
    """UCX's context is destroyed after the last worker; the other order was a segmentation fault."""
    for _ in range(20):
        guest, there = SocketsChannel(), UcxChannel()
        listener = there.listen()
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(listener.accept, soon())
            guest.connect(f"sockets:{listener.address.partition(':')[2]}", soon())  # and says no address of UCX
            time.sleep(0.005)
            there.close()
            with pytest.raises(ChannelError):
                coming.result(PATIENCE_S)
        guest.close()
        with pytest.raises(Closed):
            there.listen()


def test_a_channel_may_close_in_the_middle_of_large_messages() -> None:
    size = 3_000_000

    def carry(call: Callable[[Any, float], Any]) -> None:
        memory = np.empty(size, np.uint8)
        while True:
            call(memory, soon())

    for number in range(15):
        here, there = UcxChannel(), UcxChannel()
        listener = there.listen()
        with ThreadPoolExecutor(4) as pool:
            coming = pool.submit(listener.accept, soon())
            one = here.connect(listener.address, soon())
            other = coming.result(PATIENCE_S)
            calls = [pool.submit(carry, call) for each in (one, other) for call in (each.send, each.recv)]
            time.sleep(0.002 * number)
            (here, there)[number % 2].close()
            for call in calls:
                assert isinstance(call.exception(PATIENCE_S), Closed | PeerClosed)
        here.close()
        there.close()


def test_a_wrong_secret_is_refused() -> None:
    here, there = UcxChannel("shm", "", b"mine"), UcxChannel("shm", "", b"yours")
    listener = there.listen()
    with pytest.raises(ChannelError):
        here.connect(listener.address, time.monotonic() + 2)
    here.close()
    there.close()


@pytest.mark.parametrize(
    ("transport", "device", "words"),
    [
        ("rdma", "mlx5_0:1", "This host has no RDMA device"),
        ("tcp", "lo", "UCX finds no route over loopback"),
        ("tcp", "eth77", "This host has no interface 'eth77'"),
        ("ipoib", "", "needs the name of its interface"),
    ],
)
def test_a_missing_device_is_an_error_of_one_line(transport: str, device: str, words: str) -> None:
    """Before UCX starts, which would fall back."""
    if transport == "rdma" and Path("/sys/class/infiniband").exists() and os.listdir("/sys/class/infiniband"):
        pytest.skip("this host has an RDMA device")
    with pytest.raises(DlobdError) as error:
        UcxChannel(transport, device).listen()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unsupported_transport_is_an_error() -> None:
    with pytest.raises(UsageError, match="use tcp or ipoib or rdma or shm"):
        UcxChannel("memory")


def test_settings_have_no_second_transport() -> None:
    """It would be a silent fallback."""
    assert settings("shm", "") == {"TLS": "posix,sysv,cma"}


def test_a_named_library_has_no_alternative(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = tmp_path / "libucp.so.0"
    wrong.write_text("no library")
    monkeypatch.setenv(library.VARIABLE, str(wrong))
    with pytest.raises(SetupError, match=f"No usable UCX found: {library.VARIABLE} {wrong}"):
        library.load()


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """Clear the cache of the loaded library during this test."""
    library._load.cache_clear()
    yield
    library._load.cache_clear()


@pytest.mark.usefixtures("_forgotten")
def test_an_old_system_library_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.VARIABLE, raising=False)
    (path,) = library._of_mpich()
    loaded: list[str] = []
    really = library._loaded
    monkeypatch.setattr(
        library, "_loaded", lambda ffi, path, origin: (loaded.append(origin), really(ffi, path, origin))[1]
    )
    monkeypatch.setattr(library, "_of_system", lambda: [path])
    assert library.load().origin == "system"
    library._load.cache_clear()
    monkeypatch.setattr(library, "OLDEST_SYSTEM", (1, 99))
    assert library.load().origin == "package mpich"
    assert loaded == ["system", "package mpich"]


@pytest.mark.usefixtures("_forgotten")
def test_no_library_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setattr(library, "_of_system", lambda: ["/nowhere/libucp.so.0"])
    monkeypatch.setattr(library, "_of_mpich", list)
    with pytest.raises(SetupError, match=r"libucp\.so\.0: the library does not report its version") as error:
        UcxChannel().listen()
    assert "pip install mpich" in str(error.value)


def test_the_environment_is_restored() -> None:
    before = dict(os.environ)
    assert library.load().version[0] == 1
    assert dict(os.environ) == before
    assert library.describe().startswith("UCX 1.")
