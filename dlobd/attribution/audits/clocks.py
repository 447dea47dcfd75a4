"""Stamps: every log line has two, every recorded process reads both clocks now and then, and a file is written in the
order of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from dlobd.attribution.audits.base import NOT_MORE, Figures, Rule, other_clocks, several_clocks, worst
from dlobd.attribution.importers import jvm, log4j
from dlobd.attribution.importers.evidence import Evidence
from dlobd.bundle import files, reading
from dlobd.schema import ClockAnchor
from dlobd.tracing.clock import STEP_NS

APART_NS = 200_000_000
"""A thread may be held up so long between its two clock readings, or between one and the write. Measured on a machine
with seven runnable threads per core: up to 20 ms."""

WRITTEN_NS = 5 * 10**9
"""So much later a line may be written than it is stamped: its thread waits for the log's lock, and for a core. Measured
on the same machine: up to 730 ms."""


def _logs(evidence: Evidence) -> Iterator[Path]:
    return (path for path in sorted((evidence.path / "logs").rglob("*")) if reading.is_file(path))


def jvm_logs(evidence: Evidence) -> Iterator[Path]:
    """The JVMs' own logs."""
    yield evidence.path / files.DRIVER_JVM_LOG
    yield from sorted((evidence.path / files.CONTAINER_LOGS).glob("*/jvm.log"))


def _ahead_ns(anchor: ClockAnchor) -> int:
    return anchor.wall_ns - anchor.monotonic_ns


def _two_stamps(evidence: Evidence) -> Figures:
    # as written: of each host's clock, and before and after a step of a wall clock, some process noted both
    known = sorted(set(evidence.clock_differences_ns))
    apart = []
    for path in _logs(evidence):
        for at_ns, wall_ns in log4j.stamps(path):
            index = bisect_left(known, wall_ns - at_ns)
            apart.append(min(abs(wall_ns - at_ns - each) for each in known[max(index - 1, 0) : index + 1]))
    return worst(apart, APART_NS, other_clocks(evidence))


def _in_order(evidence: Evidence) -> Figures:
    back = [0]
    read = (
        *([at_ns for at_ns, _ in log4j.stamps(path)] for path in _logs(evidence)),
        *(jvm.stamps(path) for path in jvm_logs(evidence)),
    )
    for stamps in read:
        latest = 0
        for at_ns in stamps:
            back.append(latest - at_ns)
            latest = max(latest, at_ns)
    return worst(back, WRITTEN_NS) if any(read) else Figures()


def _anchors(evidence: Evidence) -> Figures:
    """A wall clock that is set during a run is set once, or some times in one direction: it does not go there and
    back. A first or last reading that differs from all others is no step, for nothing else tells of it."""
    if several := several_clocks(evidence):
        return Figures(why=several)
    ordered = sorted(evidence.anchors, key=lambda anchor: anchor.monotonic_ns)
    steps = [abs(_ahead_ns(b) - _ahead_ns(a)) for a, b in pairwise(ordered)]
    if len(steps) < 3:
        return Figures()
    alone = [min(before, after) for before, after in pairwise([steps[0], *steps, steps[-1]])]
    there_and_back = sum(steps) - abs(_ahead_ns(ordered[-1]) - _ahead_ns(ordered[0]))
    return worst([*alone, there_and_back // 2], STEP_NS)


def _window(evidence: Evidence) -> Figures:
    if evidence.by_hand:
        return Figures(why="the window is the ResourceManager's")
    window = evidence.window
    first, last = (window["anchors"][end]["monotonic_ns"] for end in (0, -1))
    order = (first, window["exec_ns"], window["started_ns"], window["exit_ns"], last)
    return worst([earlier - later for earlier, later in pairwise(order)], 0)


RULES = (
    Rule(
        "two stamps of a line", "The wall-clock and the monotonic stamp of each log line are as far apart as the two "
        "clocks were by what processes noted of them.",
        "logs: ns by which the stamps of a line differ from that", "what a busy machine may hold a thread up, ns",
        NOT_MORE, _two_stamps,
    ),
    Rule(
        "order of lines", "The lines of each log stand in the order of their stamps.",
        "logs, JVM logs: ns by which a line is earlier than one before it",
        "what a busy machine may hold a line up, ns", NOT_MORE, _in_order,
    ),
    Rule(
        "clock anchors", "The wall clock is as far ahead of the monotonic one as at the readings around it.",
        "anchors: ns by which one differs from both its neighbours", "what counts as slewing, ns", NOT_MORE, _anchors,
    ),
    Rule(
        "window and anchors", "The client read its clocks, started spark-submit, saw it end, and read its clocks.",
        "client: ns by which one of these is earlier than the one before", "one thread's clock, ns", NOT_MORE, _window,
    ),
)  # fmt: skip
