"""What the kernel counted of one process, read several times: times on a core, and waiting for one."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd.attribution.audits.base import NOT_MORE, Figures, Rule, other_clocks, worst
from dlobd.attribution.audits.clocks import APART_NS
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.recorder import RecordedProcess
from dlobd.tracing.clock import tick_ns

ALONE_NS = 1_000_000
"""Other threads that were less on a core were not there, or slept nearly always."""


def _counts(process: RecordedProcess) -> Iterator[int]:
    """By how much a part is more than its whole, in nanoseconds.

    One thread is on a core or waits for one for no longer than it lives, and all threads use what the process does."""
    start_ns = process.process.start_ns
    for use in process.uses:
        if use.main is None or use.threads is None:
            continue
        yield from (own - every for own, every in zip(use.main, use.threads, strict=True))
        if use.cpu_ns is not None:
            yield use.threads[0] - use.cpu_ns
        if start_ns is not None:
            yield sum(use.main) - (use.at_ns - start_ns + tick_ns())
        if use.threads[0] - use.main[0] < ALONE_NS:  # those that did nothing do not wait for longer than who did all
            yield use.threads[1] - 2 * use.main[1]


def _parts(evidence: Evidence) -> Figures:
    return worst([ns for p in evidence.processes for ns in _counts(p)], APART_NS, other_clocks(evidence))


RULES = (
    Rule(
        "times on a core", "A process was on a core, and waited for one, for no shorter than its main thread, and that "
        "for no longer than it lived.",
        "span files: ns by which a part is more than its whole", "what lies between two readings, ns",
        NOT_MORE, _parts,
    ),
)  # fmt: skip
