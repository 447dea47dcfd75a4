"""Spark: its event log against its executors' times and its driver's log, and that log against dlobd's marks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import ceil

from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, foreign, other_clocks, outside_ns, worst
from dlobd.attribution.audits.messages import LOG_NS
from dlobd.attribution.audits.own_marks import ALL_OF_IT
from dlobd.attribution.importers.event_log import TaskMetrics
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.log4j import RESOLUTION_NS
from dlobd.tracing import names
from dlobd.tracing.clock import WallToMonotonic

MS = 1_000_000

TWICE = {
    "internal.metrics.executorRunTime": "Executor Run Time",
    "internal.metrics.executorCpuTime": "Executor CPU Time",
    "internal.metrics.executorDeserializeTime": "Executor Deserialize Time",
    "internal.metrics.resultSize": "Result Size",
    "internal.metrics.jvmGCTime": "JVM GC Time",
}
"""A metric's name among the accumulables, and in the list. One of 0 is not added."""

SAID_NS = 2_000_000_000
"""What Spark counts from and to lies beside what it logs: the call of a task, of the context. Measured on
a busy machine: up to 340 ms."""

SLEWED = 1000
"""A wall clock is slewed by at most one part in 2,000 (adjtime, NTP)."""

WORKER_NS = 50_000_000
"""A Python worker's times are whole milliseconds, and it takes them beside what it times, in the same thread."""

SHORT_NS = 20_000_000
"""A call into the JVM that is shorter than 1 ms is no span; one that waited for a job of this length took longer."""

_TASK_TOOK = re.compile(r"Finished task \S+ in stage \S+ \(TID (\d+)\) in (\d+) ms")
_JOB_TOOK = re.compile(r"Job \d+ (?:finished|failed): (.*), took ([\d.]+) ms")
_JOB_CALL = re.compile(r"Starting job: (.*)$")
_PYTHON_CALL = re.compile(r"^(?!toLocalIterator|toPandas|toArrow).* at \S+\.py:\d+$")
"""Jobs of the three others run in threads of the JVM, when their call is over: Python reads what they find."""
_CONNECTION = re.compile(r"(?:Thread-\d+)?")
"""The JVM's threads that serve calls of Python; logs of older versions do not name threads."""
_UPTIME = re.compile(r"Successfully stopped SparkContext \(Uptime: (\d+) ms\)")


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


def _said(evidence: Evidence) -> Iterator[int]:
    """By how much the lengths that Spark's driver writes down differ from its stamps, in nanoseconds."""
    begun = _job_starts(evidence)
    tasks = {task.id: task.start_ns for job in evidence.driver_log.jobs for task in job.tasks}
    for line in evidence.driver_lines:
        if match := _TASK_TOOK.search(line.message):
            start_ns = tasks.get(int(match[1]))
        elif match := _JOB_TOOK.search(line.message):
            start_ns = begun.get(match[1])
        elif match := _UPTIME.search(line.message):
            # counted from before there is a log, whose set-up may take long: it may only be longer
            if (begun_ns := _at(evidence, "JVM SparkContext")) is not None:
                yield line.at_ns - begun_ns - int(match[1]) * MS
            continue
        else:
            continue
        if start_ns is not None:
            yield abs(line.at_ns - start_ns - round(float(match[match.lastindex or 0]) * MS))


def _job_starts(evidence: Evidence) -> dict[str, int]:
    """The call of a job, where only one job is of that call, to when it was made: the driver's scheduler is told of the
    job only once it has looked at its input."""
    found: dict[str, list[int]] = {}
    for line in evidence.driver_lines:
        if match := _JOB_CALL.match(line.message):
            found.setdefault(match[1], []).append(line.at_ns)
    return {call: starts[0] for call, starts in found.items() if len(starts) == 1}


def _at(evidence: Evidence, point: str) -> int | None:
    line = evidence.driver_log.points.get(point)
    return line.at_ns if line else None


def _said_lengths(evidence: Evidence) -> Figures:
    return worst([*_said(evidence)], SAID_NS)


def _in_both_logs(evidence: Evidence) -> Figures:
    place = WallToMonotonic(evidence.anchors)
    tasks = {task.id: task for job in evidence.driver_log.jobs for task in job.tasks}
    apart = []
    for ended in evidence.tasks:
        if ended.id in tasks:
            apart.append(abs(place.ms(ended.launch_ms) - tasks[ended.id].start_ns))
            if (end_ns := tasks[ended.id].end_ns) is not None:
                apart.append(abs(place.ms(ended.finish_ms) - end_ns))
    whole, points = evidence.spark_application, evidence.driver_log.points
    if whole:
        # a context takes its start time before it has a log, whose set-up may take long
        if (first := points.get("JVM SparkContext")) is not None:
            apart.append(place.ms(whole.start_ms) - first.at_ns)
        if (stopping := points.get("stopping")) is not None and whole.end_ms is not None:
            apart.append(abs(place.ms(whole.end_ms) - stopping.at_ns))
    return worst(apart, SAID_NS + place.step_ns, other_clocks(evidence))


def _tasks_of_executors(evidence: Evidence) -> Figures:
    """An executor logs that it got a task, and that it has ended it."""
    started = {task.id for job in evidence.driver_log.jobs for task in job.tasks if task.executor in evidence.executors}
    logs = evidence.executors.values()
    got = {task for log in logs for task in log.got}
    ended = {task for log in logs for task in log.finished}
    if not started or not logs:
        return Figures()
    lost = any("Lost executor" in line.message for line in evidence.driver_lines)
    doubt = "an executor was lost" if lost else "your script may leave tasks running" if evidence.own else ""
    return Figures(2 * len(started), len(started & got) + len(started & ended), doubt=doubt)


def _accumulables(evidence: Evidence) -> Figures:
    """The end of a task tells its metrics twice: in a list, and as what they added to the sums of the stage."""
    wrong = seen = 0
    for task in evidence.tasks:
        for name, added in task.added.items():
            if name in TWICE:
                seen += 1
                wrong += task.raw.get(TWICE[name]) != added
    return Figures(wrong, 0) if seen else Figures()


def _stage_sums(evidence: Evidence) -> Figures:
    """A stage tells at its end the sums of what its tasks list."""
    tasks: dict[tuple[int, int], list[TaskMetrics]] = defaultdict(list)
    for task in evidence.tasks:
        tasks[task.stage].append(task)
    wrong = seen = 0
    for stage, (count, sums) in evidence.event_log.stage_sums.items():
        if len(tasks[stage]) == count and all(task.ok for task in tasks[stage]):
            for name, listed in TWICE.items() if next(iter(TWICE)) in sums else ():  # which may be left out altogether
                seen += 1
                wrong += sum(task.raw.get(listed, 0) for task in tasks[stage]) != sums.get(name, 0)
    return Figures(wrong, 0) if seen else Figures()


def _python_times(evidence: Evidence) -> Figures:
    """A task ran for as long as its Python worker did, and the worker for as long as the function in it."""
    ended = {task.id for job in evidence.driver_log.jobs for task in job.tasks if task.end_ns is not None}
    logs = evidence.executors.values()
    times = {task: each for log in logs for task, each in log.python_times.items() if task in ended}
    pairs = [
        (each.total_ms * MS, task.run_ms * MS) for task in evidence.tasks if task.ok for each in times.get(task.id, ())
    ]
    functions: dict[int, list[int]] = defaultdict(list)
    for process in evidence.processes:
        for span in process.spans:
            if (task := span.attrs.get("task_attempt")) in times and not span.truncated:
                functions[task].append(span.end_ns - span.start_ns)
    for task, lengths_ns in functions.items():
        said_ns = sorted((each.finish_ms * MS for each in times[task]), reverse=True)
        if len(said_ns) >= len(lengths_ns):  # a worker whose rows were not wanted to the last says nothing
            pairs += zip(sorted(lengths_ns, reverse=True), said_ns, strict=False)
    excess = [part_ns - part_ns // SLEWED - whole_ns for part_ns, whole_ns in pairs]
    # who records nothing does not tell how its wall clock was set
    doubt = "" if evidence.processes else foreign(evidence)
    return worst(excess, WORKER_NS + WallToMonotonic(evidence.anchors).step_ns, doubt)


def _jobs_of_script(evidence: Evidence) -> Figures:
    """The script's Python waits for each job that it starts: what it called for that is a span of it."""
    driver = evidence.driver_process
    if not evidence.own or driver is None or not any(span.attrs.get("jvm_call") for span in driver.spans):
        return Figures(why="no calls of a script were recorded")
    if driver.named(names.TFCLUSTER_RUN):
        return Figures(why="TensorFlowOnSpark waits for jobs in a thread of its own")
    lines = [line for line in evidence.driver_lines if _CONNECTION.fullmatch(line.thread)]
    told = [(line.at_ns, match) for line in lines if (match := _JOB_TOOK.match(line.message))]
    # a job of the JVM itself is not called in a line of Python; a short call is no span
    jobs = [(at_ns, round(float(m[2]) * MS)) for at_ns, m in told if _PYTHON_CALL.search(m[1])]
    long = [(end_ns - took_ns, end_ns) for end_ns, took_ns in jobs if took_ns > SHORT_NS]
    calls = [(span.start_ns - LOG_NS, span.end_ns + LOG_NS) for span in driver.spans if span.name not in ALL_OF_IT]
    found = sum(any(begun <= start and end <= ended for begun, ended in calls) for start, end in long)
    return Figures(found, len(long), doubt=other_clocks(evidence)) if long else Figures(found)


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
    Rule(
        "lengths that Spark tells", "Jobs, tasks and the SparkContext took as long as the driver's log says in words.",
        "driver log: ns by which its stamps and its words differ", "what a busy machine may hold a thread up, ns",
        NOT_MORE, _said_lengths,
    ),
    Rule(
        "Spark's two logs", "The driver's log and the event log tell the same times of tasks and application.",
        "driver log and event log: ns apart", "what a busy machine may hold a thread up, and clock steps, ns",
        NOT_MORE, _in_both_logs,
    ),
    Rule(
        "tasks at executors", "An executor logged the begin and the end of each task that the driver started there.",
        "driver log: begins and ends", "executor logs: begins and ends", EQUAL, _tasks_of_executors, whole=True,
    ),
    Rule(
        "metrics of tasks", "What a task's end lists is what it added to the sums of its stage.",
        "event log: metrics that differ", "-", EQUAL, _accumulables,
    ),
    Rule(
        "sums of stages", "What the tasks of a stage list is together what the stage has at its end.",
        "event log: sums that differ", "-", EQUAL, _stage_sums,
    ),
    Rule(
        "times of Python workers", "By the executor's log no Python worker ran for longer than its task did, nor a "
        "function for longer than its worker.",
        "event log, executor logs, span files: ns by which one does", "what the worker's clock may be off, ns",
        NOT_MORE, _python_times,
    ),
    Rule(
        "jobs of a script", "While a job of a script ran, its driver's Python was in a call that was recorded.",
        "span files: jobs", "driver log: jobs", EQUAL, _jobs_of_script, whole=True,
    ),
)  # fmt: skip
