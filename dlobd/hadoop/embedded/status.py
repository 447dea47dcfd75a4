"""Addresses of a running cluster, and the status of its daemons."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from dlobd.hadoop.embedded import daemons
from dlobd.hadoop.embedded.configuration import DaemonPlan
from dlobd.hadoop.embedded.processes import ProcessId, rss_bytes
from dlobd.hadoop.embedded.state import ClusterState


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the cluster. `web` has the pages for users; DataNodes and NameNode have only JMX."""

    fs_uri: str
    webhdfs_url: str
    rm_url: str
    nm_urls: tuple[str, ...]
    dn_urls: tuple[str, ...]
    web: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """Status of a daemon. `pid` is None and `ready` False if it does not run."""

    name: str
    pid: int | None
    alive: bool
    ready: bool
    rss_bytes: int
    web_url: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Status of the cluster: `state` is running, incomplete or stopped."""

    state: str
    daemons: tuple[DaemonStatus, ...]
    safe_mode: bool
    applications: int
    stays: bool
    up_s: float


def look(state: ClusterState, alive: Mapping[str, ProcessId], rest: daemons.Rest) -> ClusterStatus:
    """Ask every daemon; takes at most a few seconds. `alive` has the running ones by name."""
    manager = daemons.web_address(_one(state, "resourcemanager"))
    listed = []
    for daemon in state.daemons:
        runs = daemon.name in alive
        listed.append(
            DaemonStatus(
                name=daemon.name,
                pid=alive[daemon.name].pid if runs else None,
                alive=runs,
                ready=runs and daemons.is_ready(daemon, manager, rest),
                rss_bytes=rss_bytes(alive[daemon.name]) if runs else 0,
                web_url=f"http://{daemons.web_address(daemon)}",
            )
        )
    metrics = (rest.get(f"http://{manager}/ws/v1/cluster/metrics") or {}).get("clusterMetrics", {})
    all_ready = all(daemon.ready for daemon in listed)
    return ClusterStatus(
        state="running" if all_ready else "incomplete" if alive else "stopped",
        daemons=tuple(listed),
        safe_mode=daemons.in_safe_mode(_one(state, "namenode"), rest),
        applications=int(metrics.get("appsRunning", 0)) + int(metrics.get("appsPending", 0)),
        stays=state.stays,
        up_s=max(0.0, time.time() - state.started_wall_s),
    )


def _one(state: ClusterState, kind: str) -> DaemonPlan:
    return next(daemon for daemon in state.daemons if daemon.kind == kind)
