"""Sums the work of the user's code: imports of packages, tasks inside Python workers, and lost task attempts. Pure."""

from collections import defaultdict

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.job.launchers.failure import MAX_CAUSE_CHARACTERS, cause_in
from dlobd.record.resources import Import
from dlobd.record.run import LostWork, PythonWork
from dlobd.schema import Process
from dlobd.spans import JsonMap
from dlobd.timeline.tasks import lost

MOST_IMPORTS = 2_000
"""Maximum number of rows; a Python process has about 50."""


def imports(evidence: Evidence) -> tuple[Import, ...]:
    """Return a row per process, package and importer, the longest imports of a process first; of more than
    `MOST_IMPORTS` rows, the longest."""
    totals: dict[tuple[Process, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for recorded in evidence.all_processes:
        for instant in recorded.instants:
            if instant.name == kinds.PACKAGE_IMPORTED:
                total = totals[recorded.process, instant.attrs["package"], instant.attrs["by"]]
                total[0] += instant.attrs["ns"]
                total[1] += instant.attrs["own_ns"]
    rows = [
        Import(process.role, process.index, process.pid, package, by, ns, own_ns)
        for (process, package, by), (ns, own_ns) in totals.items()
    ]
    longest = sorted(rows, key=lambda row: -row.ns)[:MOST_IMPORTS]
    return tuple(sorted(longest, key=lambda row: (row.role, row.index, row.pid, -row.ns, row.package, row.by)))


def python_work(evidence: Evidence) -> tuple[PythonWork, ...]:
    """Return the parts of ended tasks by stage and kind of evaluation. A worker without them has another PySpark."""
    groups: dict[tuple[int, int, str, str], list[JsonMap]] = defaultdict(list)
    for process in evidence.processes:
        executor = evidence.executor_of.get(process.path.parent.name, "")
        application = int(executor.partition(".")[0]) if "." in executor else 1
        for task in (span.attrs for span in process.named(kinds.USER_CODE) if span.is_divided):
            stage = -1 if task.get("stage") is None else task["stage"]
            groups[application, stage, task["evaluation"], task["how"]].append(task)
    found = []
    for (application, stage, evaluation, how), tasks in sorted(groups.items()):
        names = ("ns", "serialise_ns", "read_ns", "write_ns")
        sums = {name: sum(task[name] for task in tasks) for name in names}
        rest_ns = sums["ns"] - sums["serialise_ns"] - sums["read_ns"] - sums["write_ns"]
        function_ns = None if how == "unknown" else sum(task.get("function_ns", 0) for task in tasks)
        loop_ns = None if function_ns is None else rest_ns - function_ns
        where = f"{application}.{stage}" if application > 1 else str(stage)
        parts = {**sums, "function_ns": function_ns, "loop_ns": loop_ns, "function_and_loop_ns": rest_ns}
        found.append(PythonWork(where, evaluation, len(tasks), function=how, **parts))
    return tuple(found)


def lost_work(evidence: Evidence) -> tuple[LostWork, ...]:
    """Return the lost work of a user's job by cause; empty without any. dlobd's own job repeats no task."""
    if not (evidence.topology.has_spark and evidence.topology.user_script):
        return ()
    times: dict[str, list[int | None]] = defaultdict(list)
    for one in lost(evidence.driver.log.jobs):
        log = evidence.executors.get(one.task.executor)
        in_executor = log.finished.get(one.task.id) if log else None
        gone_ns = evidence.driver.log.gone.get(one.task.executor)
        end_ns = one.task.end_ns or one.task.lost_ns or in_executor or gone_ns
        cause = "computed again" if one.task.end_ns is not None else one.task.loss or "executor lost"
        times[cause].append(None if end_ns is None else end_ns - one.task.start_ns)
    errors = dict.fromkeys(filter(None, map(cause_in, evidence.event_log.exceptions)))
    return tuple(
        LostWork(
            cause=cause,
            attempts=len(found),
            ns=None if None in found else sum(ns or 0 for ns in found),
            messages=tuple(one[:MAX_CAUSE_CHARACTERS] for one in errors) if cause == "failed" else (),
        )
        for cause, found in sorted(times.items())
    )
