"""The commonest crashes; tests/full/faults has the others. Bounded time, one line, evidence kept, no process left."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.faults import END_S, LONG, kept

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480)]


def test_a_killed_trainer(dlobd: Any) -> None:
    """The run fails and names the trainer and the signal, although YARN has seen an application that succeeded."""
    started = dlobd.start_run(LONG)
    pid = started.trains()["worker"]
    os.kill(pid, signal.SIGKILL)
    ended = started.ended(END_S)
    assert ended.code == 5
    assert ended.line == f"dlobd: run failed: worker 0: trainer process {pid} died: killed by signal 9"
    record = kept(ended.bundle, "failed")
    assert any(warning.startswith("YARN's final status is SUCCEEDED") for warning in record["warnings"])


def test_an_interrupted_run(dlobd: Any) -> None:
    """Ctrl-C while it trains: 130, one line with the bundle, which is marked and holds the spans."""
    started = dlobd.start_run(LONG)
    started.trains()
    started.signal(signal.SIGINT)
    ended = started.ended(END_S)
    assert ended.code == 130
    assert ended.line == f"dlobd: interrupted; evidence so far: {dlobd.newest().path}"
    assert (
        kept(dlobd.newest(), "interrupted")["reason"]
        == "interrupted by the user or the system while the job was running"
    )
