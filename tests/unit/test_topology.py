"""The topology of a run, and the consequences that lanes, sources and checks ask for."""

from __future__ import annotations

import pytest

from dlobd.evidence.topology import Placement, Topology

CLIENT, CLUSTER = {"deploy_mode": "client"}, {"deploy_mode": "cluster"}


@pytest.mark.parametrize(
    ("job", "placement"),
    [
        ({}, Placement.YARN_CLIENT),
        ({"scheduler": "yarn", **CLIENT}, Placement.YARN_CLIENT),
        ({"scheduler": "yarn", **CLUSTER}, Placement.YARN_CLUSTER),
        ({"scheduler": "standalone", **CLIENT}, Placement.STANDALONE),
        ({"scheduler": "local-cluster", **CLIENT}, Placement.LOCAL_CLUSTER),
        ({"scheduler": "none", **CLIENT}, Placement.NATIVE),
    ],
)
def test_job_has_placement(job: dict[str, object], placement: Placement) -> None:
    assert Topology.of(job).placement is placement


@pytest.mark.parametrize(
    ("topology", "lane", "window"),
    [
        (Topology(Placement.NATIVE), "driver", "parent process exec -> exit"),
        (Topology(Placement.STANDALONE), "driver", "spark-submit exec -> exit"),
        (Topology(Placement.YARN_CLIENT), "driver", "spark-submit exec -> exit"),
        (Topology(Placement.YARN_CLUSTER), "spark-submit", "spark-submit exec -> exit"),
        (Topology(Placement.YARN_CLUSTER, by_hand=True), "application", "RM startedTime -> finishedTime"),
    ],
)
def test_client_waits_in_window(topology: Topology, lane: str, window: str) -> None:
    """The client waits for the process that it started, or for an application that the user submitted."""
    assert (topology.client_waits_for, topology.window_name) == (lane, window)


def test_layers_take_part() -> None:
    """YARN takes part only if it starts the executors, and user code only in a script of the user."""
    assert Topology(Placement.NATIVE).layers == {"launcher", "tensorflow", "channel"}
    standalone = Topology(Placement.STANDALONE).layers
    assert "spark" in standalone
    assert not standalone & {"yarn", "user"}
    assert {"yarn", "user"} <= Topology(Placement.YARN_CLIENT, user_script=True).layers
