"""Finds the task attempts on the critical path of Spark's jobs, and the lost attempts. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlobd.evidence.spark import Job, Task

_NONE: Mapping[str, int] = {}


class Link(NamedTuple):
    """An interval of a job, and the task that it waited for; None for a lost attempt. `starts`: it waited for the start
    of the task's executor."""

    job: str
    task: Task | None
    start_ns: int
    end_ns: int
    starts: bool = False


class Lost(NamedTuple):
    """An attempt of a task whose result was not used. `winner`: the attempt with the used result; None without one."""

    job: Job
    task: Task
    winner: Task | None

    @property
    def again(self) -> bool:
        """True if the winner started after this attempt."""
        return self.winner is not None and self.task.start_ns < self.winner.start_ns


def lost(jobs: Iterable[Job]) -> Iterator[Lost]:
    """Yield attempts that failed, were killed or were lost with their executor, and attempts whose lost result another
    attempt computed again."""
    for job in jobs:
        done: dict[tuple[int, int], list[Task]] = defaultdict(list)
        for task in sorted((t for t in job.tasks if t.end_ns is not None), key=lambda t: t.end_ns or 0):
            done[task.stage, task.index].append(task)
        for task in job.tasks:
            others = done.get((task.stage, task.index), [])
            if task.end_ns is not None and others[-1] is not task:
                yield Lost(job, task, others[-1])
            elif task.end_ns is None and (others or task.lost_ns is not None):
                yield Lost(job, task, others[0] if others else None)


def critical(
    jobs: Iterable[Job],
    finished: Mapping[str, Mapping[int, int]],
    end_ns: int,
    gone: Mapping[str, int] = _NONE,
    registered: Mapping[str, int] = _NONE,
) -> Iterator[Link]:
    """Yield the critical path of `jobs` from its end: each task ended last before the next task began. `finished`,
    `gone`, `registered`: per executor, the ends of its tasks, its loss, its registration."""
    jobs = list(jobs)
    in_vain = {one.task.id: one for one in lost(jobs) if one.winner and one.task.end_ns is None}
    # the earliest of several lost attempts counts
    by_start = sorted(in_vain.values(), key=lambda one: -one.task.start_ns)
    failed = {one.winner.id: one.task for one in by_start if one.winner and one.again}
    ended = sorted(
        # an executor may clean up after the end of its job
        (min(finished[task.executor][task.id], job.end_ns or end_ns, end_ns), task.start_ns, task.id, task, job)
        for job in jobs
        for task in job.tasks
        if task.id not in in_vain and task.id in finished.get(task.executor, {})
    )
    while ended:
        done_ns, begin_ns, _, task, job = ended.pop()
        if begin_ns >= done_ns:
            continue
        yield Link(job.name, task, begin_ns, done_ns)
        here_ns = min(registered.get(task.executor, 0), begin_ns)
        if (before := failed.get(task.id)) is not None:
            over_ns = finished.get(before.executor, {}).get(before.id) or gone.get(before.executor) or begin_ns
            if before.start_ns < over_ns < here_ns:
                yield Link(job.name, task, over_ns, here_ns, starts=True)
            else:
                over_ns = begin_ns
            yield Link(job.name, None, before.start_ns, over_ns)
            begin_ns = before.start_ns
        while ended and ended[-1][0] > begin_ns:
            ended.pop()
        if task.id not in failed and (free_ns := max(job.start_ns, ended[-1][0] if ended else 0)) < here_ns:
            yield Link(job.name, task, free_ns, here_ns, starts=True)  # no executor was free
