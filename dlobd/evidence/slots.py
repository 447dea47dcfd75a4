"""Assigns the tasks of an executor to its task slots. In a slot, one task follows the other. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

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
        tops = [span for span in process.spans if not span.parent and not span.thread]
        tops.sort(key=lambda span: span.start_ns)
        self._starts = [span.start_ns for span in tops]
        self._tasks: list[int | None] = []
        task: int | None = None
        for span in reversed(tops):
            own: int | None = span.attrs.get("task_attempt")
            task = task if own is None else own
            self._tasks.append(task)
        self._tasks.reverse()

    def at(self, at_ns: int) -> int | None:
        """Return the ID of the task served at a time; None if no such task was recorded."""
        begun = max(0, bisect_right(self._starts, at_ns) - 1)
        return self._tasks[begun] if self._tasks else None
