"""The parent of plain processes: it waits for all of them, without a poll, and leaves none behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from dlobd.job.launchers.base import TrainingFailed
from dlobd.job.launchers.native import end, free_addresses, wait
from tests.jobs import SilentMarkers as Markers


@pytest.fixture
def shells() -> Iterator[Any]:
    """Starts a process for each shell command; ends them afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*commands: str) -> list[subprocess.Popen[bytes]]:
        for command in commands:
            started.append(subprocess.Popen(["sh", "-c", command]))  # noqa: PERF401  all that were started are ended
        return started

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_it_returns_when_all_have_ended_well(shells) -> None:
    ranks = shells("true", "sleep 0.2")
    os.waitid(os.P_PID, ranks[0].pid, os.WEXITED | os.WNOWAIT)
    wait(ranks, Markers())
    assert [rank.poll() for rank in ranks] == [0, 0]


@pytest.mark.parametrize(
    ("command", "cause", "line"),
    [
        ("exit 3", None, "of rank 1 died: exit code 3"),
        ("kill -9 $$", None, "of rank 1 died: killed by signal 9"),
        ("exit 1", "rank 1 (worker): ValueError: the loss is not finite", "the loss is not finite"),
    ],
)
def test_a_rank_that_fails_ends_the_wait(shells, command: str, cause: str | None, line: str) -> None:
    """At once, though another rank still runs; what the rank said of itself counts more than how it ended."""
    ranks = shells("sleep 60", command)
    with pytest.raises(TrainingFailed, match=line.replace("(", r"\(").replace(")", r"\)")):
        wait(ranks, Markers(cause))
    assert ranks[0].poll() is None
    end(ranks)
    assert ranks[0].poll() == -signal.SIGTERM


def test_every_rank_has_an_address_of_its_own() -> None:
    addresses = free_addresses(20)
    assert len(set(addresses)) == 20
    for address in addresses:
        host, port = address.split(":")
        assert host == "127.0.0.1"
        with socket.create_server((host, int(port))):
            pass
