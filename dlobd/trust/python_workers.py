"""Check of Python workers: the time of their tasks against the times that PySpark itself measures."""

from __future__ import annotations

from collections import defaultdict

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import EVENT_LOG, EXECUTOR_LOG, WORKER_SPANS
from dlobd.evidence.recorder import RecordedSpan
from dlobd.spans import JsonMap
from dlobd.trust.base import BUSY_NS, Compared, Facts, Rules, in_applications

RULES = Rules()

NS_PER_MS = 10**6
ALLOWED_NS, ALLOWED_SHARE = 10 * NS_PER_MS, 0.01
"""Largest difference of a task. PySpark reads the wall clock, and some milliseconds before and after dlobd's marks."""


@RULES.add(
    "python-times",
    "own marks: tasks in Python workers, ms",
    "executor logs: the same tasks, ms",
    WORKER_SPANS,
    EXECUTOR_LOG,
    EVENT_LOG,
)
@in_applications
def _times(facts: Facts) -> Compared | None:
    """Check that the parts of each task in a Python worker sum to the time in PySpark's line of the executor's log, and
    for UDFs to Spark's SQL metric. No real failure is known; a test changes a line."""
    evidence = facts.evidence
    metrics = {task.id: task.python_ms for task in evidence.event_log.tasks}
    own_ns, spark_ms, beyond, largest_ns = 0, 0, 0, 0
    for (executor, task), parts in _tasks(evidence).items():
        ns, logged_ms = sum(one["ns"] for one in parts), evidence.executors[executor].python_ms.get(task)
        metric_ms = metrics.get(task) if all(one["evaluation"] != "NON_UDF" for one in parts) else None
        for ms in (logged_ms, metric_ms):
            if ms is not None:
                apart_ns = abs(ns - ms * NS_PER_MS)
                largest_ns = max(largest_ns, apart_ns)
                beyond += apart_ns > ALLOWED_NS + ALLOWED_SHARE * ns
        if logged_ms is not None:
            own_ns, spark_ms = own_ns + ns, spark_ms + logged_ms
    if not spark_ms:
        return None
    own_ms = round(own_ns / NS_PER_MS)
    message = f"Python workers ran tasks for {own_ms:,} ms; PySpark measured {spark_ms:,} ms"
    if beyond:
        message += f"; {beyond:,} tasks differ, by at most {largest_ns / NS_PER_MS:,.0f} ms"
    return Compared(not beyond, message, own_ms, spark_ms, "the machine was busy" if largest_ns < BUSY_NS else "")


def _tasks(evidence: Evidence) -> dict[tuple[str, int], list[JsonMap]]:
    """Return the parts of each ended task, by executor and ID. A task may run in several workers at once."""
    found: dict[tuple[str, int], list[RecordedSpan]] = defaultdict(list)
    for process in evidence.processes:
        if (executor := evidence.executor_of.get(process.path.parent.name)) in evidence.executors:
            for span in process.named(kinds.USER_CODE):
                if (task := span.attrs.get("task_attempt")) is not None:
                    found[executor, task].append(span)
    return {
        key: [span.attrs for span in spans]
        for key, spans in found.items()
        if all(span.is_divided and not span.truncated for span in spans)
    }
