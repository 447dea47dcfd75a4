"""Use of the machine over the time of a run, as a few hundred points."""

from __future__ import annotations

import pandas as pd

from dlobd.record.run import Run
from dlobd.report.page.source import Source
from dlobd.report.sentences import resource_line

MOST_POINTS = 300
"""With more samples, neighbours are joined."""

HOST = "host"


def usage(source: Source) -> dict[str, object]:
    """Return points [from, until, busy share of the cores, memory, read, written, network] from the window's start.
    Sizes are bytes; the last three are sums between `from` and `until`. `why`: the reason for having no points."""
    run = source.run
    if run.resources is None:
        return {"points": [], "cores": None, "line": "", "why": "Resource use was not sampled: unknown."}
    line, cores = resource_line(run.resources), run.resources.hosts[0].cores
    if source.frames is None:
        why = "The samples cannot be read: only the sums of the record are known."
        return {"points": [], "cores": cores, "line": line, "why": why}
    frame = source.frames.resources()
    host = frame[frame["role"] == HOST]
    return {"points": _points(host, run, cores), "cores": cores, "line": line, "why": ""}


def _points(host: pd.DataFrame, run: Run, cores: int) -> list[list[float | None]]:
    wall_ns = run.wall_ns or 0
    step = max(1, len(host) // MOST_POINTS)
    kept = host.iloc[::step]
    found: list[list[float | None]] = []
    for (_, before), (_, after) in zip(kept.iloc[:-1].iterrows(), kept.iloc[1:].iterrows(), strict=True):
        start_ns, end_ns = int(before["at_ns"]), int(after["at_ns"])
        if end_ns <= 0 or start_ns >= wall_ns or end_ns <= start_ns:
            continue
        busy = (int(after["cpu_ns"]) - int(before["cpu_ns"])) / ((end_ns - start_ns) * cores)
        sizes = [_grown(before, after, name) for name in ("disk_read_bytes", "disk_written_bytes", "loopback_bytes")]
        found.append([max(0, start_ns), min(end_ns, wall_ns), round(busy, 4), int(before["memory_bytes"]), *sizes])
    return found


def _grown(before: pd.Series, after: pd.Series, name: str) -> int | None:
    if pd.isna(before[name]) or pd.isna(after[name]):
        return None
    return int(after[name]) - int(before[name])
