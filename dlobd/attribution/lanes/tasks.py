"""Which attempts of Spark's tasks a job hung on, and which of them were in vain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.spark import Job, Task

_NONE: Mapping[str, int] = {}


class Link(NamedTuple):
    """A stretch of a job: its name, the executor of the task that it waited for, from when to when. Without an executor
    it is what an attempt took that had to be made again."""

    job: str
    executor: str
    start_ns: int
    end_ns: int


class Lost(NamedTuple):
    """An attempt of a task that another one did the work of."""

    job: Job
    task: Task
    winner: Task

    @property
    def again(self) -> bool:
        """Whether the work was done again after it, and not by another attempt beside it."""
        return self.task.start_ns < self.winner.start_ns


def lost(jobs: Iterable[Job]) -> Iterator[Lost]:
    """Attempts whose result the driver had from another attempt: of an executor that died, of a task that failed, or of
    one that a speculative attempt overtook. Of a task that never succeeded nothing is said."""
    for job in jobs:
        done: dict[tuple[int, int], Task] = {}
        for task in sorted((t for t in job.tasks if t.end_ns is not None), key=lambda t: t.end_ns or 0):
            done.setdefault((task.stage, task.index), task)
        for task in job.tasks:
            winner = done.get((task.stage, task.index))
            if winner is not None and winner is not task and task.end_ns is None:
                yield Lost(job, task, winner)


def lost_work(evidence: Evidence) -> Iterator[str]:
    """A line for each attempt in vain. Its time is in the wall only where a job hung on it."""
    for one in lost(evidence.driver_log.jobs):
        log = evidence.executors.get(one.task.executor)
        ended_ns = log.finished.get(one.task.id) if log else None
        how = "whose end it did not log" if ended_ns is None else f"after {(ended_ns - one.task.start_ns) / 1e9:.3f} s"
        yield (
            f"lost work: an attempt of task {one.task.index} of {one.job.name} on executor {one.task.executor}, {how}; "
            f"the one that counts ran on executor {one.winner.executor}"
        )


def _latest_first(one: Lost) -> int:
    return -one.task.start_ns


def critical(
    jobs: Iterable[Job],
    finished: Mapping[str, Mapping[int, int]],
    end_ns: int,
    gone: Mapping[str, int] = _NONE,
    registered: Mapping[str, int] = _NONE,
) -> Iterator[Link]:
    """What the end of `jobs` hung on, the last first. Each is the task that ended last before the next began: its stage
    or its executor was what that waited for. Before a task that was made again there is the attempt that was lost; and
    between them the start of an executor, if it was made by one that there was not yet.

    Args:
        finished: executor to its tasks' ends, as its log has them.
        end_ns: until when is looked.
        gone, registered: executor to when the driver gave it up, and to when it had it.
    """
    jobs = list(jobs)
    in_vain = {one.task.id: one for one in lost(jobs)}
    # the first of several is set last
    failed = {one.winner.id: one.task for one in sorted(in_vain.values(), key=_latest_first) if one.again}
    ended = sorted(
        # an executor may still clean up when its job is over
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
