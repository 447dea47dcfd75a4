"""Finds the task attempts on the critical path of Spark's jobs, lost attempts, and the call that waits for each job.
Pure."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlobd import spans as kinds
from dlobd.evidence.event_log import EventLog
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.evidence.spark import Job, Task
from dlobd.layers import LAUNCHER

_NONE: Mapping[str, int] = {}
_OF_STREAM = ("stream execution thread", "streaming-job-executor")  # prefixes of the JVM's threads that run streams
_OF_PYTHON = re.compile(r"Thread-\d+$")  # names of the JVM's threads that serve one Python thread each


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


class WaitingThreads:
    """The JVM call of the driver's Python that waits for each Spark job: the call of the thread that logs its end. If
    that is a thread of a pool, as in SQL, it is the shortest call around all jobs of the SQL execution."""

    def __init__(self, evidence: Evidence, python: RecordedProcess) -> None:
        context = evidence.driver.log.points.get("JVM SparkContext")
        own = context is not None and not any(span.thread for span in python.named(kinds.SPARK_CONTEXT))
        self._main = context.thread if context and own and _OF_PYTHON.match(context.thread) else ""
        self.calls: dict[str, list[RecordedSpan]] = {"": []}  # by Python thread, "" for the main thread
        for span in sorted(python.spans, key=lambda span: span.start_ns):
            if span.attrs.get("jvm_call"):
                self.calls.setdefault(span.thread, []).append(span)
        self._starts = {thread: [call.start_ns for call in calls] for thread, calls in self.calls.items()}
        self._launches = [span for span in python.spans if span.layer == LAUNCHER and not span.thread]
        self._by_call: dict[int, list[Job]] = defaultdict(list)
        self.elsewhere: list[tuple[Job, str]] = []  # jobs for which the main thread does not wait, and their thread
        for one in evidence.applications:
            queries: dict[str, list[Job]] = defaultdict(list)  # jobs by their SQL execution; any other job is alone
            for job in one.driver.log.jobs:
                queries[one.event_log.queries.get(job.id, f"job {job.id}")].append(job)
            for jobs in queries.values():
                self._place(jobs, one.event_log)

    def jobs_of(self, call: RecordedSpan) -> list[Job]:
        """Return the jobs for which a call waits, in the order of their start."""
        return sorted(self._by_call[call.id], key=lambda job: job.start_ns)

    def _place(self, jobs: Sequence[Job], log: EventLog) -> None:
        known = {job.thread for job in jobs if self._main and _OF_PYTHON.match(job.thread)}
        streamed = any(job.id in log.streamed or job.thread.startswith(_OF_STREAM) for job in jobs)
        begun_ns, ended_ns = min(job.start_ns for job in jobs), max(job.last_ns for job in jobs)
        around = {thread: call for thread in self.calls if (call := self._around(thread, begun_ns, ended_ns))}
        main, others = around.pop("", None), [*around.values()]
        if main is None and not others:  # a call that failed ends before its tasks
            main = self._around("", begun_ns, begun_ns)
        if streamed:  # no call of the main thread waits for it, but the stream may call back
            main = None
        elif known:
            main, others = (main, []) if self._main in known or not others else (None, others)
        found = [call for call in (main, *others) if call]
        if found:
            call = min(found, key=lambda call: call.end_ns - call.start_ns)
            self._by_call[call.id] += jobs
        if not (found and call is main) and self._main not in known:
            # a job of the launcher's own threads has spans of its own
            launched = any(span.start_ns <= begun_ns < span.end_ns for span in self._launches)
            who = "a stream" if streamed else "another thread"
            self.elsewhere += [(job, who) for job in jobs if streamed or not launched]

    def _around(self, thread: str, begun_ns: int, ended_ns: int) -> RecordedSpan | None:
        """Return the call of a thread that contains the interval."""
        at = bisect_right(self._starts[thread], begun_ns) - 1
        call = self.calls[thread][at] if at >= 0 else None
        return call if call and begun_ns < call.end_ns and ended_ns <= call.end_ns else None


def jobs_elsewhere(evidence: Evidence) -> Iterator[str]:
    """Yield a warning about the jobs of a script for which its main thread does not wait. No layer has their time."""
    python = evidence.driver_process
    if python is None or not evidence.topology.user_script:
        return
    found: dict[str, list[Job]] = defaultdict(list)
    for job, who in WaitingThreads(evidence, python).elsewhere:
        found[who].append(job)
    for who, jobs in sorted(found.items()):
        took_s = sum(job.last_ns - job.start_ns for job in jobs) / 1e9
        names = ", ".join(f"{name} ({count})" for name, count in Counter(job.name for job in jobs).most_common(3))
        yield f"no call of the main thread waited for {len(jobs)} Spark jobs of {who}, {took_s:.3f} s in total: {names}"
