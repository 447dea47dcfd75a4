"""Log lines and clocks over real sockets."""

from __future__ import annotations

import io
import json
import socket
from typing import Any, cast

import pytest

from dlobd.job.launchers import addresses, barrier
from dlobd.tracing import clock, clock_sync
from tests.waiting import until


def test_log_lines_reach_the_driver_with_their_senders_name(capsys: pytest.CaptureFixture[str]) -> None:
    with barrier.listen_to_logs("127.0.0.1") as (address, senders):
        barrier.forward_logs(io.BytesIO(b"one\ntwo \xff\nlast without end"), "rank 1", address)
        printed = ""

        def arrived() -> bool:
            nonlocal printed
            printed += capsys.readouterr().out
            return "last" in printed

        err = capsys.readouterr()
        printed += err.out
        until(arrived)
    assert printed.splitlines() == ["rank 1: one", "rank 1: two \ufffd", "rank 1: last without end"]
    assert err.err == "one\ntwo \ufffd\nlast without end"
    assert senders == {"rank 1"}


class Conf(dict[str, str]):
    """Settings of a SparkContext."""


class Context:
    """As much of a SparkContext as the driver's clock needs."""

    def __init__(self, **conf: str) -> None:
        self.environment = {"PYTHONHASHSEED": "0"}
        self._conf = Conf({name.replace("_", "."): value for name, value in conf.items()})

    def getConf(self) -> Conf:  # noqa: N802  Spark's name
        return self._conf


def test_python_workers_are_told_where_the_drivers_clock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By PySpark's environment, in which nothing else changes; the listener is where Spark's driver listens."""
    monkeypatch.delenv(addresses.BIND_IP, raising=False)
    sc: Any = Context(spark_driver_bindAddress="127.0.0.3", spark_driver_host="127.0.0.2")
    server = addresses.serve_clock(sc)
    told = json.loads(sc.environment.pop(clock_sync.VARIABLE))
    assert sc.environment == {"PYTHONHASHSEED": "0"}
    assert (told["host"], told["domain"]) == ("127.0.0.3", clock.domain())
    assert len(clock_sync.Peer(**told).exchange()) == clock_sync.BURST
    server.close()


def test_a_driver_listens_on_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(addresses.BIND_IP, raising=False)
    everywhere: Any = Context(spark_driver_bindAddress="0.0.0.0", spark_driver_host="127.0.0.2")
    assert addresses.driver_host(everywhere) == "127.0.0.2"
    assert addresses.driver_host(cast(Any, Context())) == socket.gethostname()
    monkeypatch.setenv(addresses.BIND_IP, "192.0.2.1")
    nowhere: Any = Context()
    assert addresses.serve_clock(nowhere) is None
    assert nowhere.environment == {"PYTHONHASHSEED": "0"}


def test_a_stranger_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with barrier.listen_to_logs("127.0.0.1") as (address, senders), barrier.listen_to_logs("127.0.0.1") as (other, _):
        assert address.secret != other.secret
        with socket.create_connection((address.host, address.port), 5) as stranger:
            stranger.sendall(b"guess\nhello\n")
            stranger.settimeout(10)
            try:
                assert stranger.recv(1) == b""
            except ConnectionResetError:
                pass  # it hung up with our second line unread
    assert "hello" not in capsys.readouterr().out
    assert senders == set()


def test_a_driver_that_is_gone_costs_only_its_copy(capsys: pytest.CaptureFixture[str]) -> None:
    """The trainer's output is read to its end, so that it never blocks on a full pipe."""
    with barrier.listen_to_logs("127.0.0.1") as (address, _):
        pass
    source = io.BytesIO(b"line\n" * 1000)
    barrier.forward_logs(source, "rank 0", address)
    assert source.read() == b""
    assert capsys.readouterr().err == "line\n" * 1000
