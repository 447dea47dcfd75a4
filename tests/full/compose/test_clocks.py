"""Hosts whose clocks really differ: one worker of the mini-cluster in a time namespace of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlobd.evidence.evidence import Evidence
from tests.cluster.test_ways import explained
from tests.compose.cluster import MiniCluster
from tests.compose.engine import TOP

from .test_runs import record

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

DAY_NS = 86_400 * 10**9

OTHER = """\
services:
  worker:
    deploy: {{replicas: 1}}
  ahead:
    extends: {{file: {compose}, service: worker}}
    deploy: {{replicas: 1}}
    ports: !reset []
    user: root
    cap_add: [SYS_ADMIN, SYS_TIME, SETUID, SETGID]
    environment: {{USER: dlobd, HOME: /home/dlobd}}
    entrypoint: [unshare, --time, --monotonic=86400, --fork, --kill-child,
      setpriv, --reuid=dlobd, --regid=dlobd, --clear-groups,
      /opt/dlobd/.venv/bin/python, /opt/dlobd/docker/entrypoint.py]
"""
"""One worker in a time namespace of its own, as on another machine. Making it needs root and two capabilities; the
daemons are the ordinary user's again."""


def test_a_worker_with_another_clock(project: MiniCluster, tmp_path: Path) -> None:
    """Its monotonic clock is a day ahead. Messages bound the offset to far less than what is measured, the breakdown is
    explained, and events of both hosts stand in their order."""
    other = tmp_path / "other.yaml"
    other.write_text(OTHER.format(compose=TOP / "docker" / "compose.yaml"))
    cluster = project.with_(other)
    cluster.up()
    ended = cluster.dlobd("softmax-mnist", "launcher=barrier", "exchange=ring")
    assert ended.code == 0, ended.err
    bundle = cluster.bundle(ended)
    explained(bundle)
    run = record(bundle)
    domains = {process.domain for process in Evidence(bundle.path).processes}
    assert len({domain.rpartition("/")[2] for domain in domains}) == 2, "two time namespaces"
    warnings = [text for text in run["warnings"] if "has a different clock" in text]
    bounds_us = [int(found[1]) for text in warnings if (found := re.search(r"an error of at most (\d+) us", text))]
    assert len(bounds_us) == 2, run["warnings"]
    assert max(bounds_us) < 10_000
    times = [event["at_ns"] for event in run["startup"]]
    assert times == sorted(times)
    assert times[-1] - times[0] < run["wall_ns"] < DAY_NS
    cluster.down("--volumes")
