"""All that the page shows, as one JSON-able dictionary. Nothing is computed here that a report has computed already."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from dlobd import __version__
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report import core_waits, findings, terminal, training, transport
from dlobd.report.page import tables
from dlobd.report.page.compared import common_settings, compared, own_settings
from dlobd.report.page.icicle import icicle
from dlobd.report.page.source import Source
from dlobd.report.page.steps import stepping_lanes, steps
from dlobd.report.page.timeline import timeline
from dlobd.report.page.usage import usage
from dlobd.report.summary import Part, Summary, machine_of, settings, slowest_rank, summary, title
from dlobd.schema import Event
from dlobd.spans import INSTANTS

FORMAT = 1
"""Counts up when a key changes its meaning."""

LARGEST = 5
"""So many parts are named below the bars; the table has more."""

MOST_LANES = 8
"""Ranks whose lanes are named in a line."""


def document(sources: Sequence[Source]) -> dict[str, Any]:
    """What the page shows of these runs, in their order."""
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


def _run(source: Source, shared: dict[str, Any]) -> dict[str, Any]:
    run, found = source.run, summary(source.run)
    return {
        "id": run.run_id,
        "experiment": run.experiment,
        "status": run.status,
        "started_at": run.started_at,
        "verdict": terminal.verdict(run),
        "settings": settings(run),
        "differs": [[name, value] for name, value in own_settings(run, shared).items()],
        "missing": list(source.missing),
        "findings": [asdict(one) for one in run.findings],
        "noise": findings.noise(run),
        "without_findings": findings.none(run),
        "warnings": list(found.not_sound),
        "circumstances": terminal.circumstances(run, found),
        "not_measured": [
            [title(row.layer), f"inside {title(row.inside)}: {row.why}" if row.inside else row.why]
            for row in run.not_measured
        ],
        "clips": [
            [one.kind, one.count, one.ns, f"span {one.largest.span}", one.largest.ns] for one in found.corrections
        ],
        "wall_ns": found.wall_ns,
        "window": found.window,
        "parts": [_part(part) for part in _parts(found)],
        "largest": [[one.title, one.name, one.ns] for one in found.largest[:LARGEST]],
        "sum": _sum(found),
        "startup": _events(run, run.startup),
        "teardown": _events(run, run.teardown),
        "icicle": icicle(run, source.attribution),
        "timeline": timeline(source.trace, source.attribution) if source.trace and source.attribution else None,
        "ranks": {"table": tables.ranks(run), "lines": list(_rank_lines(source))},
        "steps": steps(source),
        "training": {"table": tables.epochs(run), "lines": training.lines(run)},
        "usage": usage(source) | {"others": core_waits.others(run.core_waits) if run.core_waits else ""},
        "transport": [
            {"plane": one.plane, "verdict": transport.in_one_line(one), "evidence": list(one.evidence)}
            for one in run.transport or ()
        ],
        "transport_known": run.transport is not None,
        "exchange": tables.exchange(run),
        "overhead": terminal.recording(run.overhead) if run.overhead else "recording: its cost is unknown",
        "tables": tables.tables(run, found),
        "checks": tables.checks(run),
        "environment": tables.environment(run),
        "command": shlex.join(run.command),
        "record": source.record,
    }


def _parts(found: Summary) -> Iterable[Part]:
    return (*found.parts, *((found.unattributed,) if found.unattributed else ()))


def _part(part: Part) -> dict[str, Any]:
    """`degrees`: measured, between marks, named wait, unexplained."""
    return {
        "layer": part.layer,
        "ns": part.ns,
        "share": part.share,
        "lo_ns": part.lo_ns,
        "hi_ns": part.hi_ns,
        "below_resolution": part.below_resolution,
        "degrees": [part.measured_ns, part.between_marks_ns, part.named_wait_ns, part.unexplained_ns],
    }


def _sum(found: Summary) -> str:
    """That the parts sum to the wall, or by how much they do not."""
    if found.wall_ns is None:
        return "No breakdown: the run has no window, so there is no wall time to split."
    sign = "!=" if found.missing_ns else "=="
    return f"total {found.wall_ns - found.missing_ns:,} ns {sign} wall {found.wall_ns:,} ns: {found.window}"


def _events(run: Run, events: Sequence[Event]) -> list[list[Any]]:
    """Rows [event, from, until, resolution, source, clock, lane, what it unlocks], from the window's start."""
    if not events:
        return []
    zero_ns = run.window.start_ns if run.window else events[0].at_ns
    rows = []
    before_ns = min(events[0].at_ns - zero_ns, 0) if events is run.startup else events[0].at_ns - zero_ns
    for event in events:
        at_ns = event.at_ns - zero_ns
        kind = INSTANTS.get(event.event)
        unlocks = kind.unlocks if kind else ""
        rows.append(
            [event.event, min(before_ns, at_ns), at_ns, event.resolution_ns, event.source, event.clock, event.lane,
             unlocks]
        )  # fmt: skip
        before_ns = at_ns
    return rows


def _rank_lines(source: Source) -> Iterable[str]:
    yield from dict.fromkeys(filter(None, map(machine_of, source.run.ranks)))
    if slowest := slowest_rank(source.run):
        yield slowest
    # TensorFlow's names and those of lanes differ; more than a few are found by the number
    if source.trace and (lanes := stepping_lanes(source.trace.spans)) and len(lanes) <= MOST_LANES:
        yield f"In the timeline {', '.join(f'{rank} is {lane}' for lane, rank in lanes.items())}."
