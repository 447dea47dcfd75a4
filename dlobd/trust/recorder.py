"""Checks of dlobd's recorder: no span is lost, spans nest, and no rank leaves a collective early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from dlobd.evidence.expected.kinds import DRIVER_SPANS, RANK_SPANS, WORKER_SPANS
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan, trainers
from dlobd.trust.base import Compared, Facts, Rules, other_clocks, several_clocks

RULES = Rules()


@RULES.add("spans-read", "span files: opened spans", "span files: spans", DRIVER_SPANS, RANK_SPANS, WORKER_SPANS)
def _spans(facts: Facts) -> Compared | None:
    """Check that the bundle has every span that a process opened.

    A recorder numbers its spans, so that a lost span leaves a gap. Detects a span file that is truncated while a rank
    writes it, as in tests/full/ways/test_missing_evidence.py.
    """
    processes = [process for process in facts.evidence.processes if process.spans]
    if not processes:
        return None
    opened = sum(max(s.id for s in p.spans) - min(s.id for s in p.spans) + 1 for p in processes)
    read = sum(len(process.spans) for process in processes)
    return Compared(opened == read, f"the processes opened {opened:,} spans; the bundle has {read:,}", opened, read)


@RULES.add("nesting", "span files: largest time outside of the parent, ns", "limit, ns")
def _nesting(facts: Facts) -> Compared | None:
    """Check that spans of one thread lie inside their parents and do not overlap. Detects spans that end before they
    begin."""
    evidence = facts.evidence
    excess = [ns for process in evidence.processes for ns in _outside_ns(process)]
    if not excess:
        return None
    outside_ns = max(*excess, 0)
    message = "all spans lie inside their parents"
    if outside_ns:
        message = f"a span reaches {outside_ns / 1e9:.6f} s beyond its parent, or into the next span"
    return Compared(outside_ns == 0, message, outside_ns, 0, several_clocks(evidence))


def _outside_ns(process: RecordedProcess) -> Iterator[int]:
    by_id = {span.id: span for span in process.spans}
    siblings: dict[tuple[str, int], list[RecordedSpan]] = defaultdict(list)
    for span in process.spans:
        yield span.start_ns - span.end_ns
        parent = by_id.get(span.parent)
        if parent and parent.thread == span.thread and not (span.truncated or parent.truncated):
            yield from (parent.start_ns - span.start_ns, span.end_ns - parent.end_ns)
        if not span.attrs.get("jvm_call"):  # these are recorded at their end, so their IDs are not in order
            siblings[span.thread, span.parent].append(span)
    for spans in siblings.values():
        ordered = sorted(spans, key=lambda span: span.id)
        yield from (a.end_ns - b.start_ns for a, b in pairwise(ordered) if not a.truncated)


@RULES.add("collective-order", "span files: largest time before the last entry, ns", "error of the clocks, ns")
def _order(facts: Facts) -> Compared | None:
    """Check that no rank leaves a collective before the last rank has entered it. Detects errors of the clock offsets
    between hosts. No real failure is known; a test edits a span file."""
    evidence = facts.evidence
    members: dict[tuple[str, int | None], list[RecordedSpan]] = defaultdict(list)
    for span in (span for process in trainers(evidence.processes) for span in process.spans if span.rendezvous):
        members[span.rendezvous, span.call].append(span)
    groups = [spans for spans in members.values() if not any(span.truncated for span in spans)]
    early = [max(s.start_ns for s in spans) - min(s.end_ns for s in spans) for spans in groups if len(spans) > 1]
    if not early:
        return None
    early_ns = max(*early, 0)
    allowed_ns = 2 * max((clock.error_ns for clock in evidence.alignment.clocks.values()), default=0)
    message = f"no rank leaves any of the {len(early):,} collectives before the last rank enters it"
    if early_ns > allowed_ns:
        message = (
            f"a rank leaves a collective {early_ns / 1e9:.6f} s before the last rank enters it; "
            f"the error of the clock alignment is up to {allowed_ns / 1e9:.6f} s"
        )
    return Compared(early_ns <= allowed_ns, message, early_ns, allowed_ns, other_clocks(evidence))
