"""Status messages of ranks over real sockets, and the markers that replace lost messages."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.job import rank_status
from dlobd.job.description import Markers
from dlobd.job.rank_status import VARIABLE, JobStatus, StatusServer, send
from dlobd.spans import TRAINING_LINE
from tests.jobs import job
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[StatusServer]:
    status_server = StatusServer("127.0.0.1", 2)
    yield status_server
    status_server.close()


@pytest.fixture
def markers(tmp_path: Path) -> Markers:
    (tmp_path / "run" / "done").mkdir(parents=True)
    return Markers(job(tmp_path))


def changed(server: StatusServer, **values: object) -> dict[str, str]:
    """Returns the environment with changed settings of the server."""
    return {VARIABLE: json.dumps({**json.loads(server.environment[VARIABLE]), **values})}


def test_ranks_report_that_they_are_done(server: StatusServer) -> None:
    code = "import sys; from dlobd.job.rank_status import send; print(send({'done': int(sys.argv[1])}))"
    for rank in ("1", "0", "1"):
        result = subprocess.run(
            [sys.executable, "-c", code, rank], env=server.environment, capture_output=True, text=True, check=True
        )
        assert result.stdout.strip() == "True", result.stderr
    assert server.done() == {0, 1}
    assert server.failure() is None


def test_steps_reach_the_stdout_of_the_driver_without_waiting_for_them(
    server: StatusServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a server through a message, without a server on the rank's own stdout, which is the driver's."""
    monkeypatch.setattr(rank_status, "STEPS_S", 0.05)
    for variables in (server.environment, {}):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            losses = [2.5]
            with rank_status.reporting_steps(losses):
                printed = until(lambda: capfd.readouterr().out)
                losses += [1.5, 0.25]
            last = until(lambda: capfd.readouterr().out)
        steps = [json.loads(line.removeprefix(TRAINING_LINE)) for line in (printed + last).splitlines()]
        assert steps == [{"step": 1, "loss": 2.5}, {"step": 3, "loss": 0.25}]
    assert server.done() == frozenset()


def test_a_death_counts_more_than_a_failure_and_the_first_of_a_kind_counts(server: StatusServer) -> None:
    """Peers of a dead rank fail because of it, and may report first."""
    for message in ({"failed": "rank 0: peer is gone"}, {"failed": "rank 2: peer is gone"}):
        assert send(message, server.environment)
    assert server.failure() == "rank 0: peer is gone"
    sending = threading.Timer(0.1, send, ({"died": "killed by signal 9"}, server.environment))
    sending.start()
    assert server.final_failure(20) == "killed by signal 9"
    sending.join()
    assert server.failure() == "killed by signal 9"


def test_a_sender_without_the_secret_is_refused(server: StatusServer, capfd: pytest.CaptureFixture[str]) -> None:
    assert not send({"done": 0}, changed(server, secret="another"))
    assert server.done() == frozenset()
    assert "refused a status message of 127.0.0.1: its sender does not have the run's secret" in capfd.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"nonce\n")
                connection.recv(1 << 16)
                connection.sendall(b"heard\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert not send({"done": 0}, changed(server, port=other.getsockname()[1]))
        thread.join()


@pytest.mark.parametrize("message", [{"done": 2}, {"done": "0"}, {"failed": 1}, {"hello": "you"}, {}])
def test_an_invalid_message_is_refused(server: StatusServer, message: dict[str, object]) -> None:
    assert not send(message, server.environment)
    assert server.done() == frozenset()
    assert server.failure() is None


def test_without_a_driver_nothing_is_raised(server: StatusServer) -> None:
    assert not send({"done": 0}, {})
    assert not send({"done": 0}, {VARIABLE: "no JSON"})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not send({"done": 0}, changed(server, port=free.getsockname()[1]))


def test_a_driver_that_does_not_respond_costs_a_timeout(server: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_status, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert not send({"done": 0}, changed(server, port=mute.getsockname()[1]))


def test_the_driver_does_not_read_markers_that_messages_announce(
    server: StatusServer, markers: Markers, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = []
    monkeypatch.setattr(Markers, "read", lambda self: readings.append(1) or (set(), None))
    monkeypatch.setattr(rank_status, "SETTLE_S", 0.1)
    monkeypatch.setenv(VARIABLE, server.environment[VARIABLE])
    status = JobStatus(markers, server)
    assert status.finished() == frozenset()
    reporting = threading.Timer(0.1, markers.report_done, (1, {"rank": 1}))
    reporting.start()
    status.wait(frozenset(), 60)
    assert status.finished() == {1}
    reporting.join()
    pickle.loads(pickle.dumps(status)).report_failure("rank 0: boom\n at line 3")
    assert status.failure() == status.final_failure() == "rank 0: boom at line 3"
    assert readings == []


def test_markers_replace_lost_messages(markers: Markers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_status, "FIRST_LOOK_S", 0.1)
    status = JobStatus(markers, None)
    markers.report_done(0, {"rank": 0})
    assert status.finished() == frozenset()
    until_s = time.monotonic() + 20
    while not status.finished() and time.monotonic() < until_s:
        status.wait(frozenset(), 0.02)
    assert status.finished() == {0}
    markers.report_failure("rank 1: boom")
    assert status.final_failure() == "rank 1: boom"


def test_pauses_between_readings_double(
    server: StatusServer, markers: Markers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, readings = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Markers, "read", lambda self: readings.append(now[0]) or (set(), None))
    status = JobStatus(markers, server)
    for second in range(41):
        now[0] = float(second)
        status.finished()
        status.failure()
    assert readings == [2, 6, 14, 24, 34]


def _report(markers: Markers, cause: str) -> None:
    markers.report_failure(cause)


def test_of_many_failures_at_once_exactly_one_counts(markers: Markers) -> None:
    context = multiprocessing.get_context("spawn")
    causes = [f"rank {n}: {str(n) * 200}" for n in range(4)]
    processes = [context.Process(target=_report, args=(pickle.loads(pickle.dumps(markers)), c)) for c in causes]
    for process in processes:
        process.start()
    for process in processes:
        process.join(50)
    assert [process.exitcode for process in processes] == [0] * 4
    assert markers.read()[1] in causes
