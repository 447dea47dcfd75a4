"""Finds contradictions of causality: a message received before it was sent, a wait that ended before its release.

The messages are Spark's own. Both ends are logged by other processes than those whose clocks were compared, so that
they check the alignment independently. With one clock they check the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlobd.evidence.alignment import error_of
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import RESOLUTION_NS, LogLine
from dlobd.schema import Clip, Span
from dlobd.timeline.executor import lane_of


def reversed_messages(evidence: Evidence) -> Iterator[Clip]:
    """Yield messages between driver and executors that arrived before they were sent, beyond the uncertainty."""
    for what, sent_ns, received_ns in _messages(evidence):
        if sent_ns is None or received_ns is None:
            continue
        error_ns = 2 * RESOLUTION_NS + error_of(sent_ns) + error_of(received_ns)
        if sent_ns - received_ns > error_ns:
            yield Clip("inconsistent", what, sent_ns - received_ns)


def _messages(evidence: Evidence) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield the messages with the times at which they were sent and received."""
    driver = evidence.driver.log
    for executor, log in evidence.executors.items():
        here, registered = lane_of(executor), _at(driver.registered.get(executor))
        yield f"{here}: registration", _at(log.connecting or log.first), registered
        yield f"{here}: answer to the registration", registered, _at(log.registered)
    for job in driver.jobs:
        for task in job.tasks:
            if (own := evidence.executors.get(task.executor)) is None:
                continue
            here = lane_of(task.executor)
            yield f"{here}: task {task.id}", task.start_ns, own.got.get(task.id)
            yield f"{here}: result of task {task.id}", own.finished.get(task.id), task.end_ns


def _at(line: LogLine | None) -> int | None:
    return line.at_ns if line else None


def reversed_waits(spans: Iterable[Span]) -> Iterator[Clip]:
    """Yield waits that ended before their release, beyond the uncertainty of both."""
    for span in spans:
        if span.released_ns is None or span.truncated:
            continue
        early_ns = span.released_ns - span.end_ns
        if early_ns > 2 * span.resolution_ns:
            yield Clip("inconsistent", span.id, early_ns)
