"""Checks of dlobd's recorder: no span is lost, spans nest, and no rank leaves a collective early."""

from collections.abc import Sequence

import numpy as np

from dlobd.columns import NONE, Ints, Numbers, ints, starts_of_runs
from dlobd.evidence.expected.kinds import DRIVER_SPANS, RANK_SPANS, WORKER_SPANS
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.evidence.recorder import trainers
from dlobd.trust.base import Compared, Facts, Rules, other_clocks

RULES = Rules()


@RULES.add("spans-read", "span files: opened spans", "span files: spans", DRIVER_SPANS, RANK_SPANS, WORKER_SPANS)
def _spans(facts: Facts) -> Compared | None:
    """Check that the bundle has every span that a process opened.

    A recorder numbers its spans, so that a lost span leaves a gap. It sums the spans inside summed steps, and each step
    has their number. Detects a span file that is truncated while a rank
    writes it, as in tests/full/ways/test_missing_evidence.py.
    """
    processes = [process for process in facts.evidence.processes if process.spans]
    if not processes:
        return None
    opened = sum(int(np.ptp(process.spans.id)) + 1 + process.left_out[0] for process in processes)
    read = sum(len(process.spans) + process.left_out[1] for process in processes)
    return Compared(opened == read, f"the processes opened {opened:,} spans; the bundle has {read:,}", opened, read)


@RULES.add("nesting", "span files: largest time outside of the parent, ns", "limit, ns")
def _nesting(facts: Facts) -> Compared | None:
    """Check that spans of one thread lie inside their parents and do not overlap. Detects ends before begins."""
    evidence = facts.evidence
    processes = [process for process in evidence.processes if process.spans]
    if not processes:
        return None
    outside_ns = max(0, *(_outside_ns(process.spans) for process in processes))
    message = "all spans lie inside their parents"
    if outside_ns:
        message = f"a span reaches {outside_ns / 1e9:.6f} s beyond its parent, or into the next span"
    aligned = "the evidence has times of several clocks" if evidence.alignment.clocks else ""
    return Compared(outside_ns == 0, message, outside_ns, 0, other_clocks(evidence) or aligned)


def _outside_ns(spans: RecordedSpans) -> int:
    """Return the largest time of a span outside of its parent, before its start, or in the next span."""
    inner = np.flatnonzero(spans.outer != NONE)
    outer = spans.outer[inner]
    whole = (spans.thread[inner] == spans.thread[outer]) & ~(spans.truncated[inner] | spans.truncated[outer])
    inner, outer = inner[whole], outer[whole]
    # calls of the JVM are recorded at their end, so their IDs are not in order
    siblings = np.flatnonzero(~spans.equals("jvm_call", True))
    order = siblings[np.lexsort((spans.id[siblings], spans.parent[siblings], spans.thread[siblings]))]
    before, after = order[:-1], order[1:]
    follow = (spans.thread[before] == spans.thread[after]) & (spans.parent[before] == spans.parent[after])
    before, after = (rows[follow & ~spans.truncated[before]] for rows in (before, after))
    excess_ns = (
        spans.start_ns - spans.end_ns,
        spans.start_ns[outer] - spans.start_ns[inner],
        spans.end_ns[inner] - spans.end_ns[outer],
        spans.end_ns[before] - spans.start_ns[after],
    )
    return max(int(ns.max()) for ns in excess_ns if len(ns))


@RULES.add("collective-order", "span files: largest time before the last entry, ns", "error of the clocks, ns")
def _order(facts: Facts) -> Compared | None:
    """Check that no rank leaves a collective before the last rank has entered it. Detects errors of the clock offsets
    between hosts. No real failure is known; a test edits a span file."""
    evidence = facts.evidence
    early = _early_ns([process.spans for process in trainers(evidence.processes) if process.spans])
    if not len(early):
        return None
    early_ns = max(int(early.max()), 0)
    allowed_ns = 2 * max((clock.error_ns for clock in evidence.alignment.clocks.values()), default=0)
    message = f"no rank leaves any of the {len(early):,} collectives before the last rank enters it"
    if early_ns > allowed_ns:
        message = (
            f"a rank leaves a collective {early_ns / 1e9:.6f} s before the last rank enters it; "
            f"the error of the clock alignment is up to {allowed_ns / 1e9:.6f} s"
        )
    return Compared(early_ns <= allowed_ns, message, early_ns, allowed_ns, other_clocks(evidence))


def _early_ns(processes: Sequence[RecordedSpans]) -> Ints:
    """Return for each collective of several members the time from the first exit until the last entry."""
    numbers, columns = Numbers[str](), []
    for spans in processes:
        of_wait = ints([numbers[rendezvous] if rendezvous else NONE for _, rendezvous in spans.waits])
        rows = np.flatnonzero(of_wait[spans.wait] != NONE)
        times = (spans.start_ns[rows], spans.end_ns[rows], spans.truncated[rows])
        columns.append((of_wait[spans.wait[rows]], spans.call[rows], *times))
    if not columns:
        return np.zeros(0, np.int64)
    rendezvous, call, start_ns, end_ns, truncated = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((call, rendezvous))
    at = starts_of_runs(rendezvous[order], call[order])
    if not len(at):
        return start_ns
    several = (np.diff(np.append(at, len(order))) > 1) & ~np.logical_or.reduceat(truncated[order], at)
    early: Ints = np.maximum.reduceat(start_ns[order], at) - np.minimum.reduceat(end_ns[order], at)
    return early[several]
