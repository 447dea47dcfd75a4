"""Spark: its event log against its executors' times and its driver's log, and that log against dlobd's marks."""

from __future__ import annotations

from math import ceil

from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, other_clocks, outside_ns, worst
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.log4j import RESOLUTION_NS
from dlobd.tracing import names
from dlobd.tracing.clock import WallToMonotonic

MS = 1_000_000


def _run_time_in_task(evidence: Evidence) -> Figures:
    # Spark multiplies a task's time by its CPUs, and then subtracts what of it was deserialization, which may be all of
    # deserialize_ms: the task took at least this
    excess = [
        ceil((t.deserialize_ms + t.run_ms) / t.cpus) - (t.finish_ms - t.launch_ms) for t in evidence.tasks if t.ok
    ]
    # launch and finish are wall-clock stamps of the driver, and the executor's times are not
    moved_ms = -(-WallToMonotonic(evidence.anchors).step_ns // MS)
    return worst(excess, 1 + moved_ms)


def _tasks_in_both_logs(evidence: Evidence) -> Figures:
    started = [task.id for job in evidence.driver_log.jobs for task in job.tasks]
    doubt = "your script may set its log level, and leave tasks running" if evidence.own else ""
    return Figures(len(started) or None, len(evidence.tasks) or None, doubt=doubt)


def _marks_and_log(evidence: Evidence) -> Figures:
    outside = [
        outside_ns(span, line.at_ns)
        for name, point in ((names.SPARK_CONTEXT, "JVM SparkContext"), (names.SPARK_CONTEXT_STOP, "stopped"))
        for span in (evidence.driver_process.named(name)[:1] if evidence.driver_process else ())
        if not span.truncated and (line := evidence.driver_log.points.get(point))
    ]
    return worst(outside, RESOLUTION_NS, other_clocks(evidence))


RULES = (
    Rule(
        "run time inside the task",
        "No executor reports more run time for a task, by CPU of it, than the driver saw between launch and finish.",
        "event log: ms by which run time exceeds launch to finish", "resolution of the stamps and clock steps, ms",
        NOT_MORE, _run_time_in_task,
    ),
    Rule(
        "tasks", "The tasks that start in the driver's log are those that end in the event log.",
        "driver log", "Spark event log", EQUAL, _tasks_in_both_logs, whole=True,
    ),
    Rule(
        "own marks and Spark's log", "Spark's log lines for start and stop fall inside our spans for these calls.",
        "driver log: ns outside of our span", "resolution of the log, ns", NOT_MORE, _marks_and_log,
    ),
)  # fmt: skip
