"""Libraries over IP (sockets and gRPC): authentication, interfaces, and dead peers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dlobd.axes import LIBRARIES
from dlobd.network.channels.authentication import Refused
from dlobd.network.channels.base import Closed, DeadlinePassed, PeerClosed
from tests.ranks import PATIENCE_S, soon

NAMES = ("sockets", "grpc")
SECRET = b"of this run"
SHORT_S = 0.3

CHILD = """
import sys, time
from dlobd.axes import LIBRARIES
name, address = sys.argv[1:]
end = LIBRARIES.get(name)(secret=b"of this run").connect(address, time.monotonic() + 30)
end.send(b"here", time.monotonic() + 30)
time.sleep(60)
"""


@pytest.fixture(params=NAMES)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make(library: str) -> Iterator[Callable[..., Any]]:
    """Make channels, which are closed after the test."""
    made: list[Any] = []

    def one(*args: Any, **kwargs: Any) -> Any:
        made.append(LIBRARIES.get(library)(*args, **kwargs))
        return made[-1]

    yield one
    for channel in made:
        channel.close()


def listeners(port: int) -> set[str]:
    """Return the addresses with a listener on a port, as the kernel writes them, for IPv4 and IPv6."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as file:
            for line in file.readlines()[1:]:
                address, _, hexadecimal = line.split()[1].partition(":")
                if line.split()[3] == "0A" and int(hexadecimal, 16) == port:
                    found.add(address)
    return found


@pytest.mark.parametrize("device", ["", "lo"])
def test_a_listener_is_bound_to_loopback_only(make: Callable[..., Any], device: str) -> None:
    listener = make().listen(device)
    _, host, port = listener.address.split(":")
    assert host == "127.0.0.1"
    # gRPC listens by an IPv6 socket on the same address, which the kernel writes as ::ffff:127.0.0.1
    assert listeners(int(port)) in ({"0100007F"}, {"0000000000000000FFFF00000100007F"})
    assert " " not in listener.address


def test_ends_that_know_the_secret_connect(make: Callable[..., Any]) -> None:
    here, there = make(secret=SECRET), make(secret=SECRET, device="lo")
    listener = there.listen()
    end = here.connect(listener.address, soon())
    other = listener.accept(soon())
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(end.send, b"x", soon())
        assert other.recv(bytearray(1), soon()) == 1
        sending.result(PATIENCE_S)
    assert end.peer == listener.address.partition(":")[2]
    assert other.peer.startswith("127.0.0.1:")
    for channel in (here, there):
        assert (channel.evidence().kind, channel.evidence().device) == ("tcp", "lo")


@pytest.mark.parametrize(("here", "there"), [(b"of another run", SECRET), (b"", SECRET), (SECRET, b"")])
def test_a_wrong_secret_is_refused_at_both_ends(
    make: Callable[..., Any], capfd: pytest.CaptureFixture[str], here: bytes, there: bytes
) -> None:
    listener = make(secret=there).listen()
    with pytest.raises(Refused, match="secret"):
        make(secret=here).connect(listener.address, soon())
    with pytest.raises(DeadlinePassed):
        listener.accept(time.monotonic() + SHORT_S)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"dlobd: {listener.address}: refused 127.0.0.1:")
    assert line.endswith(": it does not have the run's secret")
    end = make(secret=there).connect(listener.address, soon())
    assert listener.accept(soon()).peer
    end.close()


def test_garbage_on_the_port_harms_no_other_peer(make: Callable[..., Any]) -> None:
    here, there = make(secret=SECRET), make(secret=SECRET)
    listener = there.listen()
    end = here.connect(listener.address, soon())
    other = listener.accept(soon())
    _, host, port = listener.address.split(":")
    for said in (b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100):
        with socket.create_connection((host, int(port)), PATIENCE_S) as bare:
            try:
                bare.sendall(said)
            except OSError:
                pass  # refused before all was said
    here.connect(listener.address, soon())
    listener.accept(soon())
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(end.send, b"still here", soon())
        assert other.recv(bytearray(10), soon()) == 10
        sending.result(PATIENCE_S)


def test_a_peer_that_is_killed_is_noticed(make: Callable[..., Any], library: str) -> None:
    listener = make(secret=SECRET).listen()
    child = subprocess.Popen([sys.executable, "-c", CHILD, library, listener.address], stderr=subprocess.DEVNULL)
    try:
        end = listener.accept(soon())
        assert end.recv(bytearray(9), soon()) == 4
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(end.recv, bytearray(1), soon())
            os.kill(child.pid, signal.SIGKILL)
            with pytest.raises(PeerClosed, match=r"127\.0\.0\.1"):
                waiting.result(PATIENCE_S / 2)
    finally:
        child.kill()
        child.wait(PATIENCE_S)


def test_connect_does_not_wait_for_accept(make: Callable[..., Any]) -> None:
    listener = make(secret=SECRET).listen()
    ends = [make(secret=SECRET).connect(listener.address, soon()) for _ in range(3)]
    accepted = [listener.accept(soon()) for _ in ends]
    assert len({end.peer for end in accepted}) == 3


def test_a_closed_listener_keeps_its_connections(make: Callable[..., Any]) -> None:
    here, there = make(), make()
    listener = there.listen()
    end = here.connect(listener.address, soon())
    other = listener.accept(soon())
    listener.close()
    with pytest.raises(Closed):
        listener.accept(soon())
    with pytest.raises(DeadlinePassed):
        here.connect(listener.address, time.monotonic() + SHORT_S)
    with ThreadPoolExecutor(1) as pool:
        for one, another in ((end, other), (other, end)):
            sending = pool.submit(one.send, b"on", soon())
            assert another.recv(bytearray(2), soon()) == 2
            sending.result(PATIENCE_S)


def test_a_peer_that_was_never_accepted_is_disconnected(make: Callable[..., Any]) -> None:
    listener = make().listen()
    end = make().connect(listener.address, soon())
    listener.close()
    with pytest.raises(PeerClosed):
        end.recv(bytearray(1), soon())


def test_a_closed_channel_makes_no_listeners_and_connections(make: Callable[..., Any], library: str) -> None:
    channel = make()
    channel.close()
    with pytest.raises(Closed):
        channel.listen()
    with pytest.raises(Closed):
        channel.connect(f"{library}:127.0.0.1:9", soon())


@pytest.mark.parametrize("address", ["", "127.0.0.1:9", "ucx:127.0.0.1:9", "sockets:127.0.0.1", "grpc:127.0.0.1:x"])
def test_an_address_of_another_library_is_refused(make: Callable[..., Any], library: str, address: str) -> None:
    with pytest.raises(ValueError, match=f"no address of library {library}"):
        make().connect(address, soon())
