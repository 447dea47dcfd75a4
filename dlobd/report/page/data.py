"""View of the page: the runs from their bundles, facts for its template, and data for the charts of its scripts.

Figures, tables and sentences are those of the terminal reports.
"""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dlobd import __version__
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import SEGMENT_LAYERS, Attribution, Trace
from dlobd.bundle.store import Bundle
from dlobd.errors import DlobdError
from dlobd.evidence.resources import SampledHost
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report import sentences, tables
from dlobd.report.comparison import common_settings, compared, labelled, own_settings
from dlobd.report.first_screen import WORDS, first_screen, layer_words
from dlobd.report.page.icicle import icicle
from dlobd.report.page.steps import stepping_lanes, steps
from dlobd.report.page.timeline import timeline
from dlobd.report.summary import by_size, machine_of, slowest_rank
from dlobd.schema import Event
from dlobd.spans import INSTANTS
from dlobd.timeline.assemble import read

MOST_POINTS = 300
"""Maximum points of a curve; more samples are aggregated."""

MOST_LANES = 8
"""Maximum ranks in the sentence that lists the lanes of the ranks."""

MOST_RANKS = 40
"""Maximum ranks in the chart of ranks: those with the slowest median step."""

MOST_RECORD_BYTES = 300_000
"""Maximum size of run.json in the page. The record of 64 executors has 0.5 MB; of two executors, 50 KB."""

SHOWN_PROBLEMS = 8
"""Maximum changed files in the list; further files are counted."""

DARK = ("#0072B2", "#882255")
"""Colours of layers that need white text."""

QUALITIES = {
    "measured": "measured_ns",
    "between marks": "between_marks_ns",
    "named wait": "named_wait_ns",
    "unexplained": "unexplained_ns",
}
"""Quality of evidence, in the order of a layer's bar -> member of `LayerTime`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A run read from its bundle.

    record: content of run.json.
    trace, attribution, sampled: None if the evidence is unreadable; `sampled` also if the machine was not sampled.
    changed: missing or changed files, one line each.
    no_timeline: reason for a missing trace; "" if there is a trace.
    """

    run: Run
    record: dict[str, object]
    trace: Trace | None
    attribution: Attribution | None
    sampled: SampledHost | None
    changed: tuple[str, ...]
    no_timeline: str = ""


def source(bundle: Bundle) -> Source:
    """Read a bundle; if its evidence is unreadable, read only the record.
    Raises BundleError if its run.json is missing, damaged or of a newer version."""
    record = bundle.read_json()
    run = Run.from_json(record)
    changed = _problems(bundle)
    try:
        trace, sampled = read(bundle.path)
        found = attribute(trace)
    except Exception as error:  # noqa: BLE001  damaged evidence can raise anything; the record is still valid
        unreadable = f"the evidence cannot be read ({type(error).__name__}: {str(error)[:200]})."
        why = error.what if isinstance(error, DlobdError) else unreadable
        return Source(run, record, None, None, None, changed, f"No timeline: {why}")
    return Source(run, record, trace, found, sampled, (*_differs(run, found), *changed))


def _problems(bundle: Bundle) -> tuple[str, ...]:
    try:
        found = bundle.verify()
    except DlobdError as error:
        return (error.what,)
    rest = len(found) - SHOWN_PROBLEMS
    more = [f"{rest} more files are changed, missing or not in hashes. dlobd verify lists them."] if rest > 0 else []
    return (*found[:SHOWN_PROBLEMS], *more)


def _differs(run: Run, found: Attribution) -> tuple[str, ...]:
    """Return a warning if the layers recomputed from the evidence differ from the record."""
    recorded = {row.layer: row.ns for row in run.layers}
    if recorded == {row.layer: row.ns for row in found.layers}:
        return ()
    return ("figures from the evidence differ from run.json; the timeline shows the evidence: dlobd verify",)


def document(sources: Sequence[Source]) -> dict[str, object]:
    """Build the view of the page for runs in the given order. A run that is given twice is shown once."""
    labels, repeated = labelled([source.run for source in sources])
    kept = [sources[place] for place in labels.values()]
    runs = [source.run for source in kept]
    shared = common_settings(runs)
    charts = [_charts(source) for source in kept]
    views = [_view(*one, shared) for one in zip(kept, labels, charts, strict=True)]
    longest_ns = max([run.wall_ns or 0 for run in runs] + [1])
    largest_ns = max([row.hi_ns for run in runs for row in run.layers] + [1])
    return {
        "title": _title(runs),
        "subject": ", ".join(dict.fromkeys(run.experiment for run in runs)),
        "version": __version__,
        "runs": views,
        "common": shared,
        "repeated": repeated,
        "comparison": compared(runs, list(labels)) if len(runs) > 1 else None,
        "longest_ns": longest_ns,
        "largest_ns": max(largest_ns, *(run.unattributed_ns or 0 for run in runs)),
        "glossary": WORDS | layer_words(),
        "DARK": DARK,
        "QUALITIES": QUALITIES,
        "charts": {
            "layers": [
                *({"name": row.name, "title": row.title, "colour": row.colour} for row in LAYERS.values()),
                {"name": UNATTRIBUTED, "title": UNATTRIBUTED, "colour": ""},
            ],
            "dark": DARK,
            "longest_ns": longest_ns,
            "runs": charts,
        },
    }


def _title(runs: Sequence[Run]) -> str:
    """Format the title, which distinguishes the pages of a browser's tabs."""
    if len(runs) > 1:
        return f"dlobd: {len(runs)} runs of {', '.join(dict.fromkeys(run.experiment for run in runs))}"[:200]
    (run,) = runs
    length = f"{run.wall_ns / 1e9:.1f} s" if run.wall_ns and run.status == "ok" else run.status
    return f"{run.experiment[:160]}, {length}, {run.started_at[:10]} - dlobd"


def _view(source: Source, label: str, charts: dict[str, Any], shared: dict[str, object]) -> dict[str, object]:
    run = source.run
    return {
        "run": run,
        "label": label,
        "screen": first_screen(run),
        "changed": source.changed,
        "no_timeline": source.no_timeline,
        "parts": by_size(run),
        "sum": sentences.total(run),
        "by_span": charts["icicle"]["by_span"],
        "anatomy": {
            "startup": tables.events(run, "Start-up", run.startup),
            "teardown": tables.events(run, "Teardown", run.teardown),
        },
        "tables": _tables(run),
        "ranked": bool(charts["ranks"]),
        "rank_lines": list(_rank_lines(source)),
        "stepping": bool(charts["steps"] and charts["steps"]["ranks"]),
        "training": sentences.training(run),
        "usage_lines": _usage_lines(source),
        "sampled": bool(charts["usage"]),
        "recording": sentences.recording(run.overhead),
        "command": shlex.join(run.command),
        "recorded": _has_small_record(source),
        "differs": own_settings(run, shared),
    }


def _tables(run: Run) -> dict[str, object]:
    """Build the tables by section of the page; no table is in two sections."""
    return {
        "layers": tables.layers(run),
        "quality": (tables.evidence(run), tables.hidden(run)),
        "where": (
            *(tables.largest(run), tables.causes(run), tables.hdfs(run), tables.lost_work(run)),
            *(tables.stages(run), tables.python_work(run), tables.imports(run), tables.setup(run)),
        ),
        "ranks": tables.ranks(run),
        "epochs": tables.epochs(run),
        "exchange": tables.exchange(run),
        "training": (tables.throughput(run), tables.metric_values(run), tables.spark_metrics(run)),
        "machine": (
            *(tables.core_waits(run), tables.layer_use(run), tables.role_use(run)),
            *(tables.process_use(run), tables.thread_use(run)),
        ),
        "environment": tables.environment(run),
        "checks": (tables.checks(run), tables.not_measured(run), tables.corrections(run)),
    }


def _charts(source: Source) -> dict[str, object]:
    run = source.run
    return {
        "id": run.run_id,
        "wall_ns": run.wall_ns,
        "startup": _events(run, run.startup, source.attribution),
        "teardown": _events(run, run.teardown, source.attribution),
        "icicle": icicle(run, source.attribution),
        "timeline": timeline(source.trace, source.attribution) if source.trace and source.attribution else None,
        "ranks": _ranked(run),
        "steps": steps(source.trace, run) if source.trace else None,
        "epochs": [[row.epoch, row.loss, row.test_accuracy] for row in run.epochs],
        "usage": _points(source),
        "cores": run.resources.hosts[0].cores if run.resources else None,
        "record": source.record if _has_small_record(source) else None,
    }


def _has_small_record(source: Source) -> bool:
    return len(json.dumps(source.record, default=str)) <= MOST_RECORD_BYTES


def _events(run: Run, events: Sequence[Event], attribution: Attribution | None) -> list[list[object]]:
    """Convert events to [event, from, until, resolution, source, clock, lane, unlocks, layer]; 0 is the window's start.
    The layer has most of the wall time since the previous event."""
    if not events:
        return []
    zero_ns = run.window.start_ns if run.window else events[0].at_ns
    rows = []
    before_ns = min(events[0].at_ns - zero_ns, 0) if events is run.startup else events[0].at_ns - zero_ns
    for event in events:
        at_ns = event.at_ns - zero_ns
        kind = INSTANTS.get(event.event)
        from_ns = min(before_ns, at_ns)
        layer = _layer_of(attribution, zero_ns + from_ns, event.at_ns)
        more = (event.source, event.clock, event.lane, kind.unlocks if kind else "", layer)
        rows.append([event.event, from_ns, at_ns, event.resolution_ns, *more])
        before_ns = at_ns
    return rows


def _layer_of(attribution: Attribution | None, start_ns: int, end_ns: int) -> str:
    """Return the layer with the most wall time in an interval; "" if it is unknown."""
    if attribution is None:
        return ""
    segments = attribution.segments  # sorted, without gaps
    inside = slice(np.searchsorted(segments.end_ns, start_ns, "right"), np.searchsorted(segments.start_ns, end_ns))
    layers, totals_ns = segments.layer[inside], np.zeros(len(SEGMENT_LAYERS), np.int64)
    times_ns = np.minimum(segments.end_ns[inside], end_ns) - np.maximum(segments.start_ns[inside], start_ns)
    np.add.at(totals_ns, layers, times_ns)
    return SEGMENT_LAYERS[np.argmax(totals_ns) if totals_ns.any() else layers[0]] if len(layers) else ""


def _ranked(run: Run) -> list[list[object]]:
    """Return [rank, median, p99, maximum] of the slowest ranks with known step times."""
    timed = [rank for rank in run.ranks if rank.step_p50_ns and rank.step_max_ns]
    slowest = sorted(timed, key=lambda rank: -(rank.step_p50_ns or 0))[:MOST_RANKS]
    return [[rank.name, rank.step_p50_ns, rank.step_p99_ns, rank.step_max_ns] for rank in timed if rank in slowest]


def _rank_lines(source: Source) -> Iterable[str]:
    yield from dict.fromkeys(filter(None, map(machine_of, source.run.ranks)))
    if slowest := slowest_rank(source.run):
        yield slowest
    # lanes are named differently from TensorFlow's roles
    if source.run.ranks and source.trace and (lanes := stepping_lanes(source.trace.spans)) and len(lanes) <= MOST_LANES:
        yield f"In the timeline {', '.join(f'{rank} is {lane}' for lane, rank in lanes.items())}."


def _usage_lines(source: Source) -> list[str]:
    run = source.run
    if run.resources is None:
        lines = ["Resource use was not sampled: unknown."]
    else:
        lines = [sentences.resource_line(run.resources)]
        lines += ["The samples cannot be read. Only the sums in run.json are known."] * (source.trace is None)
    return [*lines, *([sentences.other_processes(run.core_waits)] if run.core_waits else [])]


def _points(source: Source) -> list[list[float | None]]:
    """Build points [from, until, busy fraction of the cores, memory, read, written, loopback]. Times count from the
    window's start, sizes are bytes, and the last three are sums over the interval."""
    run, sampled = source.run, source.sampled
    if run.resources is None or run.window is None or sampled is None:
        return []
    cores, zero_ns, wall_ns = run.resources.hosts[0].cores, run.window.start_ns, run.wall_ns or 0
    samples = sorted(sampled.samples, key=lambda sample: sample.at_ns)
    found: list[list[float | None]] = []
    for before, after in pairwise(samples[:: max(1, len(samples) // MOST_POINTS)]):
        start_ns, end_ns = before.at_ns - zero_ns, after.at_ns - zero_ns
        if end_ns <= 0 or start_ns >= wall_ns or end_ns <= start_ns:
            continue
        busy = (after.cpu_busy_ns - before.cpu_busy_ns) / ((end_ns - start_ns) * cores)
        names = ("disk_read_bytes", "disk_written_bytes", "loopback_bytes")
        sizes = [_grown(getattr(before, name), getattr(after, name)) for name in names]
        found.append([max(0, start_ns), min(end_ns, wall_ns), round(busy, 4), before.memory_bytes, *sizes])
    return found


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
