"""Measure the time to start a cluster, and the CPU time of its daemons until they are ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from bench import command
from bench.tables import Table, Values, spreads
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings, default_settings

TITLE = "Cluster up"
SECONDS = "all daemons ready, s"

Start = dict[str, float | None]
"""Seconds by label."""


def measure(kept: Path, repeats: int, progress: Callable[[str], None]) -> list[Start]:
    """Start and stop a cluster with its own work directory; the file `kept` stores earlier measurements."""
    settings = replace(default_settings(), port_base=None)
    settings = replace(settings, work_dir=settings.work_dir.with_name("bench"))

    def start(_: int) -> Start:
        if not (settings.work_dir / "hdfs-formatted").exists():
            _start(settings, progress)  # not measured, because the first start formats HDFS
        return _start(settings, progress)

    return command.repeated(kept, repeats, start)


def _start(settings: ClusterSettings, progress: Callable[[str], None]) -> Start:
    cluster = EmbeddedCluster(settings)
    before_s = time.monotonic()
    try:
        cluster.start(progress)
        took_s = time.monotonic() - before_s
        pids = {daemon.name: daemon.pid for daemon in cluster.status().daemons}
        spent = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items() if pid}
        return {SECONDS: took_s, **{f"{name}, CPU s": cpu.user + cpu.system for name, cpu in spent.items()}}
    finally:
        cluster.stop(progress)


def values(starts: list[Start]) -> Values:
    """Collect the values of all starts by label."""
    return {label: [start.get(label) for start in starts] for label in starts[0]}


def table(found: Values) -> Table:
    """Build the table with a row for the start and a row per daemon."""
    says = "From the start of the first daemon until all six are ready and HDFS takes writes; CPU time of each daemon."
    return spreads(TITLE, says, "n", "median", found)
