"""P7: seconds from nothing to a cluster that takes jobs, and the CPU seconds that its daemons need for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from bench.tables import Table, Values, cells
from dlobd.compare.median import spread
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.paths import replace_file

TITLE = "Cluster up"
SECONDS = "all daemons ready, s"


def measure(kept: Path, repeats: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Start of a cluster of its own, each followed by its stop; those in the file `kept` are not repeated.

    The first start formats HDFS and does not count."""
    found: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    settings = replace(default_settings(), port_base=None)
    settings = replace(settings, work_dir=settings.work_dir.with_name("bench"))
    if len(found) < repeats and not (settings.work_dir / "hdfs-formatted").exists():
        _start(settings, progress)
    while len(found) < repeats:
        found.append(_start(settings, progress))
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, json.dumps(found, indent=1).encode())
    return found[:repeats]


def _start(settings: Any, progress: Callable[[str], None]) -> dict[str, Any]:
    cluster = EmbeddedCluster(settings)
    before = time.monotonic()
    try:
        cluster.start(progress)
        took_s = time.monotonic() - before
        pids = {daemon.name: daemon.pid for daemon in cluster.status().daemons}
        spent = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items() if pid}
        return {SECONDS: took_s} | {f"{name}, CPU s": cpu.user + cpu.system for name, cpu in spent.items()}
    finally:
        cluster.stop(progress)


def values(starts: list[dict[str, Any]]) -> Values:
    """What was measured of each start."""
    return {label: [start.get(label) for start in starts] for label in starts[0]}


def table(found: Values) -> Table:
    """Of `values`: one row for the start and one a daemon."""
    rows = [[label, *cells(spread(own))] for label, own in found.items()]
    says = "From the first daemon's start until all six are ready and HDFS takes writes; and where its time goes: CPU."
    return Table(TITLE, says, ["", "n", "median", "IQR", "min-max"], rows, found)
