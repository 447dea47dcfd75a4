"""The commonest crashes; tests/full/faults has the others. Bounded time, one line, evidence kept, no process left."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
import requests

from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import daemons_of
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
    assert ended.line == f"dlobd: interrupted; the evidence so far is in {dlobd.newest().path}."
    assert (
        kept(dlobd.newest(), "interrupted")["reason"]
        == "interrupted by the user or the system while the job was running"
    )


def test_a_killed_command_leaves_an_application_that_the_next_one_ends(dlobd: Any) -> None:
    """kill -9 of dlobd, its driver in a cluster that stays: the next run ends that application and says so."""
    started = dlobd.start_run(LONG, "deploy_mode=cluster", "launcher=barrier", "input=read")
    started.trains()
    started.signal(signal.SIGKILL)
    started.ended(10)
    run_id = dlobd.newest().run_id
    assert [path.stem for path in (dlobd.cache / "submitted").iterdir()] == [run_id]
    ended = dlobd.run("launcher=barrier", "input=read")
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.err.splitlines() if "left running" in line]
    application = re.search(r"ended (application_\d+_\d+), which run (\S+) left running", line)
    assert application is not None
    assert application[2] == run_id
    url = f"{EmbeddedCluster.attach(dlobd.work_dir, hold=False).rm_url}/ws/v1/cluster/apps/{application[1]}"
    assert requests.get(url, timeout=10).json()["app"]["state"] == "KILLED"
    assert list((dlobd.cache / "submitted").iterdir()) == []


def test_a_killed_command(alone: Any) -> None:
    """kill -9 of dlobd itself, while the job runs: no daemon, no spark-submit, no container is left."""
    started = alone.start_run(LONG)
    started.trains()
    assert len(daemons_of(alone.work_dir)) == 6
    started.signal(signal.SIGKILL)
    started.ended(10)
    alone.is_empty(60)
