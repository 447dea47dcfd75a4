"""Computes the recording overhead of a run from its bundle. Pure.

Lines, bytes and flush times are counted. The time of spans on the critical path and in the longest training loop is
estimated: their number times the cost of a span on the client's machine before the window (evidence/span_cost.json).
"""

from collections.abc import Iterable, Iterator

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import Segments, Spans
from dlobd.bundle import files, reading
from dlobd.evidence import recorder
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess
from dlobd.record.run import LoopCost, RecordingCost
from dlobd.timeline.builder import OWN_MARK

BUDGET = 0.01
"""Largest fraction of the wall time, and of a training loop, that recording takes without a warning."""

_ADDED_LOGS = (
    files.DRIVER_JVM_LOG,
    files.DRIVER_LOG,
    files.EVENT_LOG,
    f"{files.CONTAINER_LOGS}/*/jvm.log",
    f"{files.CONTAINER_LOGS}/*/{files.SPARK_LOG}",
    f"{files.DAEMON_LOGS}/*-audit.log",
    f"{files.DAEMON_LOGS}/*-clienttrace.log",
)
"""Logs that exist only because of dlobd's settings."""


def overhead(evidence: Evidence, spans: Spans, segments: Segments, wall_ns: int) -> RecordingCost | None:
    """Return the member `overhead` of run.json; None if the cost per span was not measured."""
    known = evidence.span_cost
    if not known:
        return None
    span_ns: int | None = known["span_ns"]
    recorded = evidence.all_processes
    costs = [process.cost for process in recorded if process.cost]
    on_chain = _on_chain(spans, segments)
    chain_ns = on_chain * span_ns if span_ns is not None else None
    return RecordingCost(
        recording=known["recording"],
        span_cost_ns=span_ns,
        spans=sum(len(process.spans) for process in recorded),
        lines=sum(process.lines for process in recorded),
        lost_lines=lost_lines(evidence),
        left_out=sum(cost.left_out for cost in costs) if costs else None,
        flush_ns=sum(cost.wall_ns for cost in costs) if costs else None,
        flush_cpu_ns=sum(cost.cpu_ns for cost in costs) if costs else None,
        span_bytes=sum(process.bytes for process in recorded),
        log_bytes=sum(reading.size(path) or 0 for log in _ADDED_LOGS for path in evidence.path.glob(log)),
        chain_spans=on_chain,
        chain_ns=chain_ns,
        chain_share=_share(chain_ns, wall_ns),
        loop=_loop(evidence.processes, span_ns),
    )


def warnings(cost: RecordingCost | None) -> Iterator[str]:
    """Yield warnings about switched-off or expensive recording."""
    if cost is None:
        return
    if cost.recording == "off":
        yield "recording was off (DLOBD_TRACE): no breakdown by layer; wall time and training loop are valid"
    shares = {"the wall time": cost.chain_share}
    if cost.loop:
        shares[f"the training loop of {cost.loop.rank}"] = cost.loop.share
    for whole, share in shares.items():
        if share is not None and share > BUDGET:
            yield f"recording took about {100 * share:.1f} % of {whole}; the limit is {100 * BUDGET:.0f} %"


def lost_lines(evidence: Evidence) -> int:
    """Count the lines of span files that could not be written to disk."""
    return sum(recorder.lost_lines(evidence.path, evidence.all_processes).values())


def _on_chain(spans: Spans, segments: Segments) -> int:
    """Count spans that began while their lane was on the critical path. Other spans caused no delay."""
    own = np.flatnonzero(spans.of_origins(lambda origin: origin.source == OWN_MARK))
    order = own[np.lexsort((spans.start_ns[own], spans.lane[own]))]
    bounds = np.searchsorted(spans.lane[order], np.arange(len(spans.lanes) + 1))
    count, lanes = 0, segments.lane
    for lane in np.unique(lanes).tolist():
        starts_ns, here = spans.start_ns[order[bounds[lane] : bounds[lane + 1]]], lanes == lane
        ends = np.searchsorted(starts_ns, segments.end_ns[here]) - np.searchsorted(starts_ns, segments.start_ns[here])
        count += int(ends.sum())
    return count


def _loop(processes: Iterable[RecordedProcess], span_ns: int | None) -> LoopCost | None:
    """Return the cost in the longest training loop. All its threads count, since they share one interpreter."""
    loops = [
        (last.at_ns - first.at_ns, first.at_ns, process)
        for process in processes
        if (first := process.instant(kinds.FIRST_BATCH)) and (last := process.instant(kinds.LAST_STEP_DONE))
    ]
    if not loops:
        return None
    length_ns, first_ns, process = max(loops, key=lambda loop: loop[0])
    starts_ns = process.spans.start_ns
    spans = int(((first_ns <= starts_ns) & (starts_ns < first_ns + length_ns)).sum())
    cost_ns = spans * span_ns if span_ns is not None else None
    rank = f"{process.process.role} {process.process.index}"
    return LoopCost(rank, length_ns, spans, cost_ns, _share(cost_ns, length_ns))


def _share(part_ns: int | None, whole_ns: int) -> float | None:
    return part_ns / whole_ns if part_ns is not None and whole_ns else None
