"""Helpers of the tests that break something while a job trains."""

from __future__ import annotations

from typing import Any

import dlobd as library
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.class_path import prepare
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.jars import resolve_jars
from dlobd.hadoop.embedded.startup import Launch
from dlobd.hadoop.embedded.state import read_state

LONG = "epochs=200"
"""200 epochs of 30 steps take minutes, unless something ends them."""

END_S = 150
"""Deadline of a command after a process was killed, on a busy machine."""


def kept(bundle: Bundle, status: str) -> dict[str, Any]:
    """Checks the evidence of a run that ended in its training; returns the record."""
    record = bundle.read_json()
    assert record["status"] == status
    assert bundle.verify() == []
    assert sum(layer["ns"] for layer in record["layers"]) + record["unattributed_ns"] == record["wall_ns"] > 0
    steps = library.load(bundle.path).steps()
    assert set(steps["role"]) == {"chief", "worker"}, "the spans up to then"
    assert "first step done" in [event["event"] for event in record["startup"]]
    assert record["metrics"]["test_accuracy"] is None
    assert any("no recorded end" in warning for warning in record["warnings"])
    return record


def start_again(cluster: EmbeddedCluster, name: str) -> None:
    """Starts a daemon that has died, with its configuration and ports; returns when it is ready.

    This takes no lock, because the command whose job needs the daemon may hold the lock.
    """
    cluster._state = state = read_state(cluster.work_dir)
    classes = prepare(cluster.java, resolve_jars(cluster.java, print), print)
    here = [daemon for daemon in state.daemons if daemon.name == name]
    launch = Launch(cluster.settings, state.daemons, cluster.java, classes, cluster._record, here)
    launch.run(print, END_S)
    cluster._children += launch.children
