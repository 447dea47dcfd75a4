"""The PMI server: ranks that speak PMI as MPI does, that are missing or die, and clients that are refused."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.rendezvous import pmi
from dlobd.network.rendezvous.pmi import PmiServer, connect_pmi
from dlobd.network.rendezvous.store import RendezvousError
from tests.ranks import PATIENCE_S, on_ranks, soon

SECRET = b"of this run"
SHORT_S = 0.1


@pytest.fixture
def server() -> Iterator[PmiServer]:
    with closing(PmiServer("127.0.0.1", 2, SECRET)) as made:
        yield made


class Speaker:
    """A rank that speaks PMI, line by line."""

    def __init__(self, server: PmiServer, rank: int, size: int) -> None:
        self.socket = connect_pmi(server.address, rank, size, SECRET, soon())
        self.socket.settimeout(PATIENCE_S)
        self._lines = self.socket.makefile("rb")

    def ask(self, line: str) -> dict[str, str]:
        """Send a request and return the words of the answer."""
        self.socket.sendall(line.encode() + b"\n")
        return self.hear()

    def hear(self) -> dict[str, str]:
        """Return the words of the next line; empty once the server has closed."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:  # it did not read all that was said
            line = b""
        return dict(word.split("=", 1) for word in line.decode().split())

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


def speakers(server: PmiServer, size: int) -> list[Speaker]:
    return on_ranks(size, lambda rank: Speaker(server, rank, size))


def until_refused(server: PmiServer, why: str) -> str:
    until_s = soon()
    while time.monotonic() < until_s:
        for line in list(server.refused):
            if why in line:
                return line
        time.sleep(0.01)
    raise AssertionError(f"nobody was refused as {why!r}, only {server.refused}")


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_ranks_get_the_values_of_others(size: int) -> None:
    with closing(PmiServer("127.0.0.1", size, SECRET)) as server:

        def work(rank: int) -> list[list[str]]:
            with closing(Speaker(server, rank, size)) as own:
                assert own.ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
                job = own.ask("cmd=get_my_kvsname")["kvsname"]
                seen = []
                for k in range(10):
                    assert own.ask(f"cmd=put kvsname={job} key=a{rank} value=v{k}={rank}")["rc"] == "0"
                    assert own.ask("cmd=barrier_in")["cmd"] == "barrier_out"
                    seen.append(
                        [own.ask(f"cmd=get kvsname={job} key=a{other}")["value"].split("=")[1] for other in range(size)]
                    )
                assert own.ask("cmd=finalize")["cmd"] == "finalize_ack"
                return seen

        expected = [[str(rank) for rank in range(size)]] * 10
        assert on_ranks(size, work) == [expected] * size
        assert not server.refused


def test_requests_without_keys(server: PmiServer) -> None:
    one, other = speakers(server, 2)
    assert one.ask("cmd=get_universe_size")["size"] == "2"
    assert one.ask("cmd=get_maxes")["vallen_max"] == "1024"
    assert one.ask("cmd=get_appnum")["appnum"] == "0"
    job = other.ask("cmd=get_my_kvsname")["kvsname"]
    assert other.ask(f"cmd=get kvsname={job} key=PMI_process_mapping")["rc"] == "-1"
    one.close()
    other.close()


def test_two_jobs_have_two_names(server: PmiServer) -> None:
    with closing(PmiServer("127.0.0.1", 1, SECRET)) as another:
        every = [*speakers(server, 2), *speakers(another, 1)]
        names = [own.ask("cmd=get_my_kvsname")["kvsname"] for own in every]
        assert names[0] == names[1] != names[2]
        for own in every:
            own.close()


def test_a_missing_rank_is_named() -> None:
    with closing(PmiServer("127.0.0.1", 4, SECRET)) as server:

        def work(rank: int) -> str:
            with pytest.raises(RendezvousError) as failed:
                connect_pmi(server.address, rank, 4, SECRET, time.monotonic() + SHORT_S)
            return str(failed.value)

        assert on_ranks(2, work) == ["rank 2 and rank 3 did not connect in time"] * 2


def test_a_wrong_secret_is_refused(server: PmiServer, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RendezvousError, match="the secret of this end is not the run's secret"):
        connect_pmi(server.address, 0, 2, b"another", soon())
    until_refused(server, "does not have the run's secret")
    assert capfd.readouterr().err.count("\n") == 1
    for one in speakers(server, 2):
        one.close()


@pytest.mark.parametrize("said", [b"cmd=init pmi_version=1 pmi_subversion=1\n", b"GET / HTTP/1.1\r\n\r\n", bytes(5000)])
def test_garbage_on_the_port_is_refused(server: PmiServer, said: bytes) -> None:
    _, host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as stranger:
        stranger.sendall(said)
        until_refused(server, "does not speak the protocol of dlobd's channels")
    for one in speakers(server, 2):
        one.close()


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (b"", "its first message"),
        (b"x" * 100, "its first message"),
        (struct.pack("<IId", 2, 2, 1.0), "rank 2 of 2"),
        (struct.pack("<IId", 0, 3, 1.0), "rank 0 of 3, but the job has 2 ranks"),
        (struct.pack("<IId", 0, 2, float("nan")), "its timeout"),
        (struct.pack("<IId", 0, 2, -1.0), "its timeout"),
    ],
)
def test_an_invalid_rank_is_refused(server: PmiServer, hello: bytes, why: str) -> None:
    with closing(SocketsChannel("tcp", "", SECRET)) as channel:
        connection = channel.connect(server.address, soon())
        connection.send(hello, soon())
        memory = bytearray(1000)
        assert why.encode() in memory[: connection.recv(memory, soon())]
    until_refused(server, why)
    for one in speakers(server, 2):
        one.close()


def test_a_rank_number_is_accepted_once(server: PmiServer) -> None:
    ranks = speakers(server, 2)
    with pytest.raises(RendezvousError, match="rank 1 has connected before"):
        connect_pmi(server.address, 1, 2, SECRET, soon())
    for one in ranks:
        assert one.ask("cmd=finalize")["cmd"] == "finalize_ack"
        one.close()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("garbage", "does not speak PMI"),
        ("cmd", "does not speak PMI"),
        ("", "does not speak PMI"),
        ("cmd=init pmi_version=2", "version '2'"),
        ("mcmd=spawn cmd=spawn", "sends command 'spawn'"),
        ("cmd=put kvsname=another key=a value=1", "a key that is invalid in this job"),
        ("cmd=get kvsname={job} key=" + "k" * 65, "a key that is invalid in this job"),
        ("cmd=put kvsname={job} key=a value=" + "v" * 1025, "more than"),
        ("x" * 5000, "line of more than 4096"),
    ],
)
def test_a_rank_that_does_not_speak_pmi_is_refused(
    server: PmiServer, capfd: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    one, other = speakers(server, 2)
    job = one.ask("cmd=get_my_kvsname")["kvsname"]
    assert other.ask(line.replace("{job}", job)) == {}
    until_refused(server, why)
    assert one.ask("cmd=barrier_in")["rc"] == "-1"
    assert one.hear() == {}
    server.close()
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert "rank 0 could not start MPI: rank 1 is gone" in said[1]
    one.close()
    other.close()


def test_the_number_of_keys_is_limited(server: PmiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi, "KEYS", 3)
    one, other = speakers(server, 2)
    job = one.ask("cmd=get_my_kvsname")["kvsname"]
    for k in (0, 1, 2, 2):
        assert one.ask(f"cmd=put kvsname={job} key=k{k} value=1")["rc"] == "0"
    assert one.ask(f"cmd=put kvsname={job} key=k3 value=1") == {}
    until_refused(server, "more than 3 values")
    one.close()
    other.close()


def test_an_incomplete_line_times_out(server: PmiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi, "LINE_S", SHORT_S)
    one, other = speakers(server, 2)
    time.sleep(3 * SHORT_S)
    assert one.ask("cmd=get_appnum")["rc"] == "0"
    other.socket.sendall(b"cmd=get_ap")
    assert other.hear() == {}
    until_refused(server, "did not complete a line")
    one.close()
    other.close()


def test_a_barrier_has_a_deadline(
    server: PmiServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pmi, "BARRIER_S", SHORT_S)
    one, other = speakers(server, 2)
    assert one.ask("cmd=barrier_in")["rc"] == "-1"
    server.close()
    assert "rank 1 did not reach a barrier of MPI" in capfd.readouterr().err
    one.close()
    other.close()


def test_a_rank_that_is_killed_ends_a_barrier(server: PmiServer, capfd: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys, time; from dlobd.network.rendezvous.pmi import connect_pmi\n"
        "own = connect_pmi(sys.argv[1], 1, 2, b'of this run', time.monotonic() + 20); print('there', flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, server.address], stdout=subprocess.PIPE) as child:
        with closing(Speaker(server, 0, 2)) as one:
            assert child.stdout.readline() == b"there\n"
            killer = threading.Timer(SHORT_S, child.send_signal, [signal.SIGKILL])
            killer.start()
            assert one.ask("cmd=barrier_in")["rc"] == "-1"
            killer.join()
        server.close()
    assert "rank 0 could not start MPI: rank 1 is gone" in capfd.readouterr().err


def test_closing_wakes_all_waiting_ranks() -> None:
    with closing(PmiServer("127.0.0.1", 2, SECRET)) as server:
        closer = threading.Timer(SHORT_S, server.close)
        closer.start()
        with pytest.raises(RendezvousError):
            connect_pmi(server.address, 0, 2, SECRET, soon())
        closer.join()
    with closing(PmiServer("127.0.0.1", 2, SECRET)) as server:
        one, other = speakers(server, 2)
        closer = threading.Timer(SHORT_S, server.close)
        closer.start()
        assert one.ask("cmd=barrier_in").get("rc") != "0"
        assert other.hear() == {}
        closer.join()
        one.close()
        other.close()


def test_a_missing_server_is_an_error(server: PmiServer) -> None:
    server.close()
    with pytest.raises(RendezvousError, match=f"cannot reach the driver's PMI server at {server.address}"):
        connect_pmi(server.address, 0, 2, SECRET, time.monotonic() + SHORT_S)


def test_two_hundred_servers_leave_no_thread_and_no_descriptor() -> None:
    def once(finalise: bool) -> None:
        with closing(PmiServer("127.0.0.1", 2, SECRET)) as server:
            for each in speakers(server, 2):
                if finalise:
                    each.ask("cmd=finalize")
                each.close()

    once(True)
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for k in range(200):
        once(bool(k % 2))
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
