"""Finds the task attempts on the critical path of Spark's jobs, and the lost attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.spark import Job, Task

_NONE: Mapping[str, int] = {}


class Link(NamedTuple):
    """An interval of a job, and the executor of the task that it waited for; empty for a lost attempt."""

    job: str
    executor: str
    start_ns: int
    end_ns: int


class Lost(NamedTuple):
    """An attempt of a task whose result came from another attempt, the winner."""

    job: Job
    task: Task
    winner: Task

    @property
    def again(self) -> bool:
        """True if the winner started after this attempt."""
        return self.task.start_ns < self.winner.start_ns


def lost(jobs: Iterable[Job]) -> Iterator[Lost]:
    """Yield attempts of lost executors and of failed or slow tasks, whose result came from another attempt."""
    for job in jobs:
        done: dict[tuple[int, int], Task] = {}
        for task in sorted((t for t in job.tasks if t.end_ns is not None), key=lambda t: t.end_ns or 0):
            done.setdefault((task.stage, task.index), task)
        for task in job.tasks:
            winner = done.get((task.stage, task.index))
            if winner is not None and winner is not task and task.end_ns is None:
                yield Lost(job, task, winner)


def lost_work(evidence: Evidence) -> Iterator[str]:
    """Yield a warning for each lost attempt. Its time is wall time only if a job waited for it."""
    for one in lost(evidence.driver.log.jobs):
        log = evidence.executors.get(one.task.executor)
        ended_ns = log.finished.get(one.task.id) if log else None
        how = "without a logged end" if ended_ns is None else f"after {(ended_ns - one.task.start_ns) / 1e9:.3f} s"
        yield (
            f"lost work: an attempt of task {one.task.index} of {one.job.name} on executor {one.task.executor}, {how}; "
            f"the attempt with the used result ran on executor {one.winner.executor}"
        )


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
    in_vain = {one.task.id: one for one in lost(jobs)}
    # the earliest of several lost attempts counts
    failed = {
        one.winner.id: one.task for one in sorted(in_vain.values(), key=lambda one: -one.task.start_ns) if one.again
    }
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
        yield Link(job.name, task.executor, begin_ns, done_ns)
        if (before := failed.get(task.id)) is not None:
            over_ns = finished.get(before.executor, {}).get(before.id) or gone.get(before.executor) or begin_ns
            here_ns = min(registered.get(task.executor, 0), begin_ns)
            if before.start_ns < over_ns < here_ns:
                yield Link(job.name, task.executor, over_ns, here_ns)
            else:
                over_ns = begin_ns
            yield Link(job.name, "", before.start_ns, over_ns)
            begin_ns = before.start_ns
        while ended and ended[-1][0] > begin_ns:
            ended.pop()
