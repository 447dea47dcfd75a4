"""Data of the page as a dictionary for JSON, with the figures, tables and sentences of the terminal reports."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import pandas as pd

from dlobd import __version__
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report import sentences, tables
from dlobd.report.first_screen import first_screen
from dlobd.report.page.compared import common_settings, compared, own_settings
from dlobd.report.page.icicle import icicle
from dlobd.report.page.source import Source
from dlobd.report.page.steps import stepping_lanes, steps
from dlobd.report.page.timeline import timeline
from dlobd.report.summary import Part, machine_of, settings, slowest_rank, summary
from dlobd.schema import Event
from dlobd.spans import INSTANTS

FORMAT = 1
"""Version of the data format; it increases if the meaning of a key changes."""

LARGEST = 5
"""Number of parts listed below the bars; the table has more."""

MOST_POINTS = 300
"""Maximum points of a curve; more samples are aggregated."""

HOST = "host"

MOST_LANES = 8
"""Maximum ranks in the sentence that lists the lanes of the ranks."""


def document(sources: Sequence[Source]) -> dict[str, object]:
    """Build the page's data for runs in the given order."""
    runs = [source.run for source in sources]
    shared = common_settings(runs)
    return {
        "format": FORMAT,
        "dlobd": __version__,
        "layers": [
            *({"name": row.name, "title": row.title, "colour": row.colour} for row in LAYERS.values()),
            {"name": UNATTRIBUTED, "title": UNATTRIBUTED, "colour": ""},
        ],
        "common": [[name, value] for name, value in shared.items()],
        "runs": [_run(source, shared) for source in sources],
        "comparison": compared(runs) if len(runs) > 1 else None,
    }


def _run(source: Source, shared: dict[str, object]) -> dict[str, object]:
    run, found = source.run, summary(source.run)
    return {
        "id": run.run_id,
        "experiment": run.experiment,
        "status": run.status,
        "started_at": run.started_at,
        "verdict": first_screen(run).headline,
        "settings": settings(run),
        "differs": [[name, value] for name, value in own_settings(run, shared).items()],
        "missing": list(source.missing),
        "findings": [asdict(row) | {"saving": sentences.saving(row)} for row in run.findings],
        "noise": sentences.noise(run),
        "without_findings": sentences.no_finding(run),
        "warnings": list(found.not_sound),
        "circumstances": sentences.circumstances(run, found),
        "not_measured": tables.not_measured(run).to_json(),
        "corrections": tables.corrections(found).to_json(),
        "wall_ns": found.wall_ns,
        "window": found.window,
        "parts": [_part(part) for part in (*found.parts, found.unattributed) if part],
        "largest": [[one.title, one.name, one.ns] for one in found.largest[:LARGEST]],
        "sum": sentences.total(found),
        "startup": _events(run, run.startup),
        "teardown": _events(run, run.teardown),
        "events": {
            "startup": tables.events(run, "Start-up", run.startup).to_json(),
            "teardown": tables.events(run, "Teardown", run.teardown).to_json(),
        },
        "icicle": icicle(run, source.attribution),
        "timeline": timeline(source.trace, source.attribution) if source.trace and source.attribution else None,
        "ranks": {"table": tables.ranks(run).to_json(), "lines": list(_rank_lines(source))},
        "steps": steps(source),
        "training": {"table": tables.epochs(run).to_json(), "lines": sentences.training(run)},
        "usage": _usage(source) | {"others": sentences.other_processes(run.core_waits) if run.core_waits else ""},
        "transport": [
            {"plane": one.plane, "verdict": sentences.transport(one), "evidence": list(one.evidence)}
            for one in run.transport or ()
        ],
        "transport_known": run.transport is not None,
        "exchange": tables.exchange(run).to_json(),
        "overhead": sentences.recording(run.overhead),
        "tables": [table.to_json() for table in tables.page_tables(run, found)],
        "checks": tables.checks(run).to_json(),
        "environment": tables.environment(run).to_json(),
        "command": shlex.join(run.command),
        "record": source.record,
    }


def _part(part: Part) -> dict[str, object]:
    """Convert a part; `qualities` are the times measured, between marks, in named waits, and unexplained."""
    return {
        "layer": part.layer,
        "ns": part.ns,
        "share": part.share,
        "lo_ns": part.lo_ns,
        "hi_ns": part.hi_ns,
        "below_resolution": part.below_resolution,
        "qualities": [part.measured_ns, part.between_marks_ns, part.named_wait_ns, part.unexplained_ns],
    }


def _events(run: Run, events: Sequence[Event]) -> list[list[object]]:
    """Convert events to [event, from, until, resolution, source, clock, lane, unlocks]; 0 is the window's start."""
    if not events:
        return []
    zero_ns = run.window.start_ns if run.window else events[0].at_ns
    rows = []
    before_ns = min(events[0].at_ns - zero_ns, 0) if events is run.startup else events[0].at_ns - zero_ns
    for event in events:
        at_ns = event.at_ns - zero_ns
        kind = INSTANTS.get(event.event)
        unlocks = kind.unlocks if kind else ""
        times = min(before_ns, at_ns), at_ns, event.resolution_ns
        rows.append([event.event, *times, event.source, event.clock, event.lane, unlocks])
        before_ns = at_ns
    return rows


def _rank_lines(source: Source) -> Iterable[str]:
    yield from dict.fromkeys(filter(None, map(machine_of, source.run.ranks)))
    if slowest := slowest_rank(source.run):
        yield slowest
    # lanes are named differently from TensorFlow's roles
    if source.trace and (lanes := stepping_lanes(source.trace.spans)) and len(lanes) <= MOST_LANES:
        yield f"In the timeline {', '.join(f'{rank} is {lane}' for lane, rank in lanes.items())}."


def _usage(source: Source) -> dict[str, object]:
    """Build points [from, until, busy fraction of the cores, memory, read, written, loopback]. Times count from the
    window's start, sizes are bytes, and the last three are sums over the interval. `why`: reason for missing points."""
    run = source.run
    if run.resources is None:
        return {"points": [], "cores": None, "line": "", "why": "Resource use was not sampled: unknown."}
    line, cores = sentences.resource_line(run.resources), run.resources.hosts[0].cores
    if source.frames is None:
        why = "The samples cannot be read. Only the sums in run.json are known."
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
