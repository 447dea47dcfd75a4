"""Sums the time of task attempts whose results Spark did not use. Pure."""

from collections import defaultdict

from dlobd.evidence.evidence import Evidence
from dlobd.job.launchers.failure import MAX_CAUSE_CHARACTERS, cause_in
from dlobd.record.run import LostWork
from dlobd.timeline.tasks import Lost, lost


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
        times[_cause(one)].append(None if end_ns is None else end_ns - one.task.start_ns)
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


def _cause(one: Lost) -> str:
    if one.task.end_ns is not None:
        return "computed again"
    return one.task.loss or "executor lost"
