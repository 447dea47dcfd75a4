"""What cannot have happened in this order: a message received before it was sent, a wait that ended before its release.

The messages are Spark's own, logged at both ends by other processes than those whose clocks were compared: a check of
the alignment that does not depend on it. On one clock it checks the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.log4j import RESOLUTION_NS, LogLine
from dlobd.attribution.importers.timestamp import error_of
from dlobd.attribution.lanes.executor import lane_of
from dlobd.schema import Clip, Span


def reversed_messages(evidence: Evidence) -> Iterator[Clip]:
    """Messages between the driver and its executors that came before they went, by more than stamps are uncertain."""
    for what, sent_ns, received_ns in _messages(evidence):
        if sent_ns is None or received_ns is None:
            continue
        error_ns = 2 * RESOLUTION_NS + error_of(sent_ns) + error_of(received_ns)
        if sent_ns - received_ns > error_ns:
            yield Clip("inconsistent", what, sent_ns - received_ns)


def _messages(evidence: Evidence) -> Iterator[tuple[str, int | None, int | None]]:
    """What was said, when it was sent, and when it was received."""
    driver = evidence.driver_log
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
    """Waits that ended before what released them, by more than both are uncertain."""
    for span in spans:
        if span.released_ns is None or span.truncated:
            continue
        early_ns = span.released_ns - span.end_ns
        if early_ns > 2 * span.resolution_ns:
            yield Clip("inconsistent", span.id, early_ns)
