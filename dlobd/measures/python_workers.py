"""Sums the parts of tasks inside Python workers, by stage and kind of evaluation. Pure."""

from collections import defaultdict

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.record.run import PythonWork
from dlobd.spans import JsonMap


def python_work(evidence: Evidence) -> tuple[PythonWork, ...]:
    """Return the parts of ended tasks. A worker without them has another version of PySpark."""
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
