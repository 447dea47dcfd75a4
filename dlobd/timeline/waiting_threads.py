"""Finds the JVM call of the driver's Python that waits for each Spark job: the call of the thread that logs its end. If
that is a thread of a pool, as in SQL, it is the shortest call around all jobs of the SQL execution. Pure."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from dlobd import spans as kinds
from dlobd.evidence.event_log import EventLog
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.evidence.spark import Job
from dlobd.layers import LAUNCHER

_OF_STREAM = ("stream execution thread", "streaming-job-executor")  # prefixes of the JVM's threads that run streams
_OF_PYTHON = re.compile(r"Thread-\d+$")  # names of the JVM's threads that serve one Python thread each


class WaitingThreads:
    """The waiting call of each job of the driver."""

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
