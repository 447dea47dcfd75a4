"""Assigns the tasks of an executor to its task slots. In a slot, one task follows the other. Pure."""

from collections.abc import Iterable, Mapping

import numpy as np

from dlobd.columns import NONE, Ints
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.spark import Task
from dlobd.evidence.timestamp import error_of

FIRST = 1
"""The number of the first slot. It also has the work of the executor outside of its tasks."""


def number(tasks: Iterable[Task], finished: Mapping[int, int], gone_ns: int | None) -> dict[int, int]:
    """Map the ID of each task of one executor to its slot: the first that is free at its start.

    Args:
        finished: task ID -> its end in the executor's log.
        gone_ns: the end of the executor, and of tasks without an end; None if unknown.
    """
    free: list[int | None] = []  # end of the last task in each slot
    found = {}
    for task in sorted(tasks, key=lambda task: (task.start_ns, task.id)):
        slot = next((slot for slot, end_ns in enumerate(free) if _before(end_ns, task.start_ns)), len(free))
        free[slot : slot + 1] = [finished.get(task.id) or task.end_ns or task.lost_ns or gone_ns]
        found[task.id] = FIRST + slot
    return found


def _before(end_ns: int | None, start_ns: int) -> bool:
    # the executor's log has the end of a task, the driver's log the start of the next
    return end_ns is not None and end_ns <= start_ns + 2 * RESOLUTION_NS + error_of(end_ns) + error_of(start_ns)


class Served:
    """The tasks that a Python worker served, one after the other.

    A task has its outermost spans. A span without a task, such as an import, prepares the next task."""

    def __init__(self, process: RecordedProcess) -> None:
        spans = process.spans
        tops = spans.where((spans.parent == 0) & spans.in_main_thread)
        tops = tops.where(np.argsort(tops.start_ns, kind="stable"))
        task = tops.values("task_attempt", NONE)
        # each span without a task belongs to the next span with one
        places = np.where(task == NONE, len(task), np.arange(len(task)))
        following = np.minimum.accumulate(places[::-1])[::-1]
        self._starts_ns, self._tasks = tops.start_ns, np.append(task, NONE)[following]

    def at(self, at_ns: Ints) -> Ints:
        """Return the ID of the task served at each time; NONE if no such task was recorded."""
        begun = np.maximum(0, np.searchsorted(self._starts_ns, at_ns, "right") - 1)
        return np.append(self._tasks, NONE)[begun]
