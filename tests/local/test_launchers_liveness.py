"""Ranks that do not join, seen from outside by real sockets, and a trainer's deadline in a real process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from dlobd.job.launchers import liveness
from dlobd.job.launchers.liveness import JoinWatch


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "JOIN_TIMEOUT_S", 0.3)
    monkeypatch.setattr(liveness, "CHECK_S", 0.05)


def looked(joining: JoinWatch, seconds: float) -> str | None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if cause := joining.check():
            return cause
        time.sleep(0.02)
    return None


def servers(stack: ExitStack, count: int) -> list[str]:
    """Addresses of sockets that are bound; `listen` makes a rank of one."""
    found = []
    for _ in range(count):
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen()
        found.append(f"127.0.0.1:{server.getsockname()[1]}")
    return found


def test_the_rank_that_does_not_listen_is_named(impatient: None) -> None:
    """One listens, two do not: after the patience, and not before it, both are named with their addresses."""
    with ExitStack() as stack:
        (chief,) = servers(stack, 1)
        joining = JoinWatch({"chief 0": chief, "worker 0": "127.0.0.1:1", "worker 1": "127.0.0.1:2"})
        assert joining.check() is None
        assert looked(joining, 10) == (
            "worker 0 at 127.0.0.1:1 and worker 1 at 127.0.0.1:2 did not join TensorFlow's cluster within 0 s of the "
            "first rank"
        )


def test_nobody_is_blamed_while_nobody_or_everybody_listens(impatient: None) -> None:
    assert looked(JoinWatch({"chief 0": "127.0.0.1:1", "worker 0": "127.0.0.1:2"}), 1) is None
    with ExitStack() as stack:
        chief, worker = servers(stack, 2)
        joining = JoinWatch({"chief 0": chief, "worker 0": worker})
        assert joining.check() is None
    assert looked(joining, 1) is None


def test_a_deadline_ends_a_process_that_waits(tmp_path: object) -> None:
    """What is in time is let pass; what is not ends the process with the cause, also inside a read that never ends."""
    code = """
import os, sys
from dlobd.job.training.inputs import Deadlines
def give_up(cause):
    print(cause, flush=True)
    os._exit(7)
deadlines = Deadlines(give_up)
with deadlines.within(60, lambda: "too early"):
    pass
read, write = os.pipe()
with deadlines.within(0.1, lambda: "nothing came"):
    os.read(read, 1)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (7, "nothing came\n")
