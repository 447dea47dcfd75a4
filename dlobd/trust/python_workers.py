"""Check of Python workers: the time of their tasks against the times that PySpark itself measures."""

from collections import defaultdict

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import EVENT_LOG, EXECUTOR_LOG, WORKER_SPANS
from dlobd.evidence.recorder import RecordedSpan
from dlobd.trust.base import BUSY_NS, NS_PER_MS, Compared, Facts, Rules, in_applications

RULES = Rules()

ALLOWED_NS, ALLOWED_SHARE = 10 * NS_PER_MS, 0.01
"""Largest difference of a task. PySpark reads the wall clock, and some milliseconds before and after dlobd's marks."""


@RULES.add(
    "python-times",
    "own marks: tasks in Python workers, ms",
    "executor logs, event log: the same tasks, ms",
    WORKER_SPANS,
    EXECUTOR_LOG,
    EVENT_LOG,
)
@in_applications
def _times(facts: Facts) -> Compared | None:
    """Check that the parts of each task in a Python worker sum to the time that PySpark measured: of RDDs in a line of
    the executor's log, of UDFs in Spark's SQL metric. No real failure is known; a test changes a line."""
    evidence = facts.evidence
    metrics = {task.id: task.python_ms for task in evidence.event_log.tasks}
    own_ns, spark_ms, beyond, largest_ns = 0, 0, 0, 0
    for (executor, task, of_rdd), ns in _tasks(evidence).items():
        ms = evidence.executors[executor].python_ms.get(task) if of_rdd else metrics.get(task)
        if ms is not None:
            apart_ns = abs(ns - ms * NS_PER_MS)
            largest_ns = max(largest_ns, apart_ns)
            beyond += apart_ns > ALLOWED_NS + ALLOWED_SHARE * ns
            own_ns, spark_ms = own_ns + ns, spark_ms + ms
    if not spark_ms:
        return None
    own_ms = round(own_ns / NS_PER_MS)
    message = f"Python workers ran tasks for {own_ms:,} ms; PySpark measured {spark_ms:,} ms"
    if beyond:
        message += f"; {beyond:,} tasks differ, by at most {largest_ns / NS_PER_MS:,.0f} ms"
    return Compared(not beyond, message, own_ms, spark_ms, "the machine was busy" if largest_ns < BUSY_NS else "")


def _tasks(evidence: Evidence) -> dict[tuple[str, int, bool], int]:
    """Return the ns of each ended task in Python workers. The last part of a key is True for functions of RDDs. A task
    may run in several workers at once."""
    found: dict[tuple[str, int, bool], list[RecordedSpan]] = defaultdict(list)
    for process in evidence.processes:
        if (executor := evidence.executor_of.get(process.path.parent.name)) in evidence.executors:
            for span in process.named(kinds.USER_CODE):
                if (task := span.attrs.get("task_attempt")) is not None:
                    found[executor, task, span.attrs.get("evaluation") == "NON_UDF"].append(span)
    return {
        key: sum(span.attrs["ns"] for span in spans)
        for key, spans in found.items()
        if all(span.is_divided and not span.truncated for span in spans)
    }
