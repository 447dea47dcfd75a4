"""Checks of Spark: its event log against its driver's log, and times of tasks that executors and workers report."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import ceil

from dlobd import spans as kinds
from dlobd.bundle.files import executor_key
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import DRIVER_LOG, EVENT_LOG, EXECUTOR_LOG, WORKER_SPANS
from dlobd.evidence.recorder import RecordedSpan
from dlobd.evidence.topology import Placement
from dlobd.tracing.clock import WallToMonotonic, stepped_ns
from dlobd.trust.base import BUSY_NS, NS_PER_MS, NS_PER_S, Compared, Facts, Rules, in_applications, unknown

RULES = Rules()

SHARE = 0.01
"""Allowed difference of task seconds."""

ALLOWED_NS, ALLOWED_SHARE = 10 * NS_PER_MS, 0.01
"""Largest difference of a task in a Python worker: PySpark reads the wall clock, some milliseconds before and after
dlobd's marks."""

DROPPED = "from eventLog"
"""Spark's listener queue drops events if the writer of the event log is too slow, and warns with this text."""


@RULES.add(
    "tasks", "driver log: tasks that start", "Spark event log: tasks that end", DRIVER_LOG, EVENT_LOG, whole=True
)
@in_applications
def _tasks(facts: Facts) -> Compared | None:
    """Check that the driver's log and the event log have the same tasks. Detects events that Spark dropped, and jobs
    that the driver's log lacks. No real failure is known; a test removes lines."""
    evidence = facts.evidence
    if not evidence.topology.has_spark:
        return None
    # the driver may stop before an attempt that it kills ends
    started = {task.id for task in evidence.driver.log.tasks if not task.loss or task.lost_ns}
    ended = {task.id for task in evidence.event_log.tasks}
    if not started:
        return None
    if not ended:
        return unknown("Spark's event log has no ended task")
    doubt = "the script may change its log level, or leave tasks running" if evidence.topology.user_script else ""
    if any("Dropped" in line.message and DROPPED in line.message for line in evidence.driver.lines):
        doubt = "Spark dropped events of its event log, because the driver was busy"
    message = f"the driver's log has {len(started):,} started tasks; the event log has {len(ended):,} ended tasks"
    return Compared(started == ended, message, len(started), len(ended), doubt)


@RULES.add(
    "task-seconds",
    "driver log: task seconds of the executor with the largest difference",
    "Spark event log: task seconds of this executor",
    DRIVER_LOG,
    EVENT_LOG,
    whole=True,
)
@in_applications
def _seconds(facts: Facts) -> Compared | None:
    """Check that both logs agree in the time of each executor's task attempts, also of lost attempts. Detects attempts
    in the wrong executor or without an end. No real failure is known; a test removes a line."""
    evidence = facts.evidence
    recorded = {
        ended.id: (executor_key(evidence.number, ended.executor), (ended.finish_ms - ended.launch_ms) * NS_PER_MS)
        for ended in evidence.event_log.tasks
    }
    topology = evidence.topology
    if not topology.user_script or topology.placement is Placement.LOCAL or not any(ns for _, ns in recorded.values()):
        return None
    if not all(ended.executor for ended in evidence.event_log.tasks):
        return unknown("Spark's event log lacks the executor of a task")
    logged: dict[int, tuple[str, int]] = {}
    for task in evidence.driver.log.tasks:
        end_ns = task.end_ns or task.lost_ns
        if end_ns is not None:
            logged[task.id] = task.executor, end_ns - task.start_ns
        elif task.id in recorded:
            return unknown(f"the driver's log lacks the end of task {task.id}")
    left, right = (_by_executor(tasks) for tasks in (logged, recorded))
    worst = max({**left, **right}, key=lambda executor: abs(left[executor] - right[executor]))
    seconds, other = left[worst] / NS_PER_S, right[worst] / NS_PER_S
    holds = abs(seconds - other) <= max(SHARE * other, BUSY_NS / NS_PER_S)
    message = f"executor {worst}: {seconds:.3f} s of tasks in the driver's log, {other:.3f} s in the event log"
    doubt = "the wall clock was stepped" if stepped_ns(evidence.anchors) else ""
    # the driver may be suspended between an event and its line
    if all(
        (pair := logged.get(task)) and pair[0] == executor and abs(pair[1] - ns) < BUSY_NS
        for task, (executor, ns) in recorded.items()
    ):
        doubt = doubt or "the machine was busy"
    return Compared(holds, message, round(seconds, 3), round(other, 3), doubt)


def _by_executor(tasks: Mapping[int, tuple[str, int]]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for executor, ns in tasks.values():
        sums[executor] += ns
    return sums


@RULES.add(
    "task-run-time",
    "Spark event log: largest excess of run time, ms",
    "limit from resolution and clock steps, ms",
    EVENT_LOG,
)
def _run_time(facts: Facts) -> Compared | None:
    """Check that no executor reports a longer run time for a task than the driver saw between launch and finish. Failed
    in 3b15cd3 for tasks with several CPUs, since Spark multiplies their run time by the CPUs (SPARK-51666)."""
    evidence = facts.evidence
    # Spark subtracts deserialization after it multiplied by the CPUs
    excess = [
        ceil((task.deserialize_ms + task.run_ms) / task.cpus) - (task.finish_ms - task.launch_ms)
        for task in evidence.event_log.tasks
        if task.ok
    ]
    if not excess:
        return None
    # launch and finish are timestamps of the driver's wall clock, and the executor measures a duration
    allowed_ms = 1 + -(-WallToMonotonic(evidence.anchors).step_ns // NS_PER_MS)
    excess_ms = max(*excess, 0)
    message = f"none of {len(excess):,} tasks reports a longer run time than the driver saw"
    if excess_ms > allowed_ms:
        message = (
            f"a task reports a run time {excess_ms:,} ms longer than the driver saw; "
            f"the limit from clock steps and rounding is {allowed_ms:,} ms"
        )
    return Compared(excess_ms <= allowed_ms, message, excess_ms, allowed_ms)


@RULES.add(
    "python-times",
    "own marks: tasks in Python workers, ms",
    "executor logs, event log: the same tasks, ms",
    WORKER_SPANS,
    EXECUTOR_LOG,
    EVENT_LOG,
)
@in_applications
def _python_times(facts: Facts) -> Compared | None:
    """Check that the parts of each task in a Python worker sum to the time that PySpark measured: of RDDs in a line of
    the executor's log, of UDFs in Spark's SQL metric. No real failure is known; a test changes a line."""
    evidence = facts.evidence
    metrics = {task.id: task.python_ms for task in evidence.event_log.tasks}
    own_ns, spark_ms, beyond, largest_ns = 0, 0, 0, 0
    for (executor, task, of_rdd), ns in _python_tasks(evidence).items():
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


def _python_tasks(evidence: Evidence) -> dict[tuple[str, int, bool], int]:
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
