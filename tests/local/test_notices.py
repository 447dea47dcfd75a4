"""What ranks tell their driver, over real sockets; and what it finds out by itself where they cannot."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.job import notices, outcome
from dlobd.job.description import Markers
from dlobd.job.notices import VARIABLE, Notices, tell
from dlobd.job.outcome import Outcome
from tests.jobs import job


@pytest.fixture
def told() -> Iterator[Notices]:
    """A driver of two ranks that listens."""
    found = Notices("127.0.0.1", 2)
    yield found
    found.close()


@pytest.fixture
def markers(tmp_path: Path) -> Markers:
    """Markers of a job that was prepared."""
    (tmp_path / "run" / "done").mkdir(parents=True)
    return Markers(job(tmp_path))


def changed(told: Notices, **values: object) -> dict[str, str]:
    """The environment in which something of the driver's place is wrong."""
    return {VARIABLE: json.dumps({**json.loads(told.environment[VARIABLE]), **values})}


def test_ranks_say_that_they_are_done(told: Notices) -> None:
    """Each by itself, from a process of its own; a rank that says it twice is one."""
    code = "import sys; from dlobd.job.notices import tell; print(tell({'done': int(sys.argv[1])}))"
    for rank in ("1", "0", "1"):
        said = subprocess.run(
            [sys.executable, "-c", code, rank], env=told.environment, capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == "True", said.stderr
    assert told.done() == {0, 1}
    assert told.failure() is None


def test_a_death_counts_more_than_a_failure_and_the_first_of_a_kind_counts(told: Notices) -> None:
    """Peers of a rank that died fail because of it, and may speak first."""
    for message in ({"failed": "rank 0: peer is gone"}, {"failed": "rank 2: peer is gone"}):
        assert tell(message, told.environment)
    assert told.failure() == "rank 0: peer is gone"
    telling = threading.Timer(0.1, tell, ({"died": "killed by signal 9"}, told.environment))
    telling.start()
    assert told.last_word(20) == "killed by signal 9"
    telling.join()
    assert told.failure() == "killed by signal 9"


def test_who_does_not_know_the_secret_is_not_heard(told: Notices, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor is a rank believed that hears something else than the driver."""
    assert not tell({"done": 0}, changed(told, secret="another"))
    assert told.done() == frozenset()
    assert "refused a notice of 127.0.0.1: its sender does not know the run's secret" in capfd.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"nonce\n")
                connection.recv(1 << 16)
                connection.sendall(b"heard\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert not tell({"done": 0}, changed(told, port=other.getsockname()[1]))
        thread.join()


@pytest.mark.parametrize("message", [{"done": 2}, {"done": "0"}, {"failed": 1}, {"hello": "you"}, {}])
def test_what_is_no_notice_is_refused(told: Notices, message: dict[str, object]) -> None:
    """Also from one who knows the secret."""
    assert not tell(message, told.environment)
    assert told.done() == frozenset()
    assert told.failure() is None


def test_without_a_driver_nothing_is_raised(told: Notices) -> None:
    """A rank has left its marker, and ends."""
    assert not tell({"done": 0}, {})
    assert not tell({"done": 0}, {VARIABLE: "no JSON"})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not tell({"done": 0}, changed(told, port=free.getsockname()[1]))


def test_a_driver_that_does_not_answer_costs_a_deadline(told: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts, and that is all."""
    monkeypatch.setattr(notices, "DEADLINE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert not tell({"done": 0}, changed(told, port=mute.getsockname()[1]))


def test_a_marker_is_told_and_its_directory_not_looked_at(
    told: Notices, markers: Markers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait ends with the notice; what the rank left is not asked for."""
    looks = []
    monkeypatch.setattr(Markers, "look", lambda self: looks.append(1) or (set(), None))
    monkeypatch.setattr(outcome, "GRIEF_S", 0.1)
    monkeypatch.setenv(VARIABLE, told.environment[VARIABLE])
    done = Outcome(markers, told)
    assert done.finished() == frozenset()
    reporting = threading.Timer(0.1, markers.report_done, (1, {"rank": 1}))
    reporting.start()
    done.wait(frozenset(), 60)
    assert done.finished() == {1}
    reporting.join()
    pickle.loads(pickle.dumps(done)).report_failure("rank 0: boom\n at line 3")
    assert done.failure() == done.last_word() == "rank 0: boom at line 3"
    assert looks == []


def test_what_nobody_could_tell_is_found_in_the_markers(markers: Markers, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause, and at once where something has failed."""
    monkeypatch.setattr(outcome, "FIRST_LOOK_S", 0.1)
    done = Outcome(markers, None)
    markers.report_done(0, {"rank": 0})
    assert done.finished() == frozenset()
    until_s = time.monotonic() + 20
    while not done.finished() and time.monotonic() < until_s:
        done.wait(frozenset(), 0.02)
    assert done.finished() == {0}
    markers.report_failure("rank 1: boom")
    assert done.last_word() == "rank 1: boom"


def test_pauses_between_looks_become_longer(told: Notices, markers: Markers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling from the first to the longest."""
    now, looks = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Markers, "look", lambda self: looks.append(now[0]) or (set(), None))
    done = Outcome(markers, told)
    for second in range(41):
        now[0] = float(second)
        done.finished()
        done.failure()
    assert looks == [2, 6, 14, 24, 34]
