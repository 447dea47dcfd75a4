"""The lane of one executor: its container's start, its JVM, its tasks, and what its Python workers recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlobd.clock import tick_ns
from dlobd.importers.application_lane import RM_LOG, add_container_start, add_process_start
from dlobd.importers.builder import OWN_MARK, LaneBuilder
from dlobd.importers.evidence import Evidence
from dlobd.importers.log4j import RESOLUTION_NS
from dlobd.importers.recorder import RecordedProcess, RecordedSpan
from dlobd.importers.spark import Job, Task
from dlobd.importers.yarn import Marks
from dlobd.schema import Process, Span

DRIVER_LOG = "driver log"
AM_LOG = "AM log"
EXECUTOR_LOG = "executor log"
FEED_JOIN = "TensorFlowOnSpark feed join poll (sleep 1 s)"
FEED_JOIN_PERIOD_NS = 1_000_000_000

RANK_ROLES = ("chief", "worker", "ps", "evaluator")


def lane_of(executor: str) -> str:
    """The lane of executor `executor`, Spark's executor id."""
    return f"executor-{executor}"


def build(
    evidence: Evidence,
    executor: str,
    host: str,
    tasks: Sequence[tuple[Job, Task]],
    rank: str | None,
    consumed_ns: Callable[[int], int | None],
    resolve: Callable[[RecordedSpan, dict[str, Any]], dict[str, Any]],
    in_task: tuple[int, int] | None,
) -> list[Span]:
    """An executor's spans.

    Args:
        tasks: the executor's tasks with their jobs, in the order of their start.
        rank: the lane of the trainer that was forked here, if any.
        consumed_ns: for the end of a feed task, when the trainer had taken the last block before it.
        resolve: names the lanes of recorded waits.
        in_task: from when to when the trainer ran inside a Spark task, if it did.
    """
    container = evidence.executor_containers[executor]
    marks = evidence.yarn.containers.get(container, Marks()).at
    log = evidence.executors[executor]
    lane = LaneBuilder(lane_of(executor), Process(host, "executor", _index(executor), 0))
    am = evidence.application_master
    requested = am.requested.at_ns if am.requested else None
    lane.add(
        "spark", "AM prepares its request", evidence.yarn.application.at.get("ATTEMPT_RUNNING"), requested,
        f"{RM_LOG}, {AM_LOG}", resolution_ns=RESOLUTION_NS,
    )  # fmt: skip
    add_container_start(lane, marks, "executor", requested, AM_LOG)
    life = evidence.container_jvm(container)
    if not evidence.on_yarn:
        connected = evidence.driver_log.points.get("connected")
        lane.add(
            "spark", "Master and Worker start executor", connected.at_ns if connected else None,
            life.start_ns if life else None, f"{DRIVER_LOG}, executor JVM log", resolution_ns=RESOLUTION_NS,
        )  # fmt: skip
    registered = evidence.driver_log.registered.get(executor)
    ready_ns = registered.at_ns if registered else None
    end_ns = _end(evidence, container, marks)
    add_process_start(
        lane,
        "executor",
        (marks.get("RUNNING"), life.start_ns if life else None, log.first.at_ns if log.first else None),
        (ready_ns or end_ns, DRIVER_LOG, ready_ns is None),
    )
    _add_tasks(lane, tasks, log.finished, ready_ns, end_ns)
    if in_task and rank:
        lane.add("spark", "trainer in task", *in_task, OWN_MARK, waits_for=(rank,))

    def own(span: RecordedSpan, wait: dict[str, Any]) -> dict[str, Any]:
        if wait.get("waits_for") == ["@trainer"]:
            return {**wait, "waits_for": (rank,) if rank else ()}
        return resolve(span, wait)

    for process in evidence.recorded_in(container):
        if process.process.role in RANK_ROLES:
            continue
        if not process.forked:
            lane.add(
                "spark", "start Python daemon", process.process.start_ns, process.opened_ns, "/proc, " + OWN_MARK,
                resolution_ns=tick_ns(), process=process.process,
            )  # fmt: skip
        lane.add_recorded(process, resolve=own)
        _add_joins(lane, process, rank, consumed_ns)
    return lane.spans


def _add_tasks(
    lane: LaneBuilder,
    tasks: Sequence[tuple[Job, Task]],
    finished: dict[int, int],
    ready_ns: int | None,
    end_ns: int | None,
) -> None:
    """Scheduling, running, and idling until the driver has the next job."""
    free_ns = ready_ns
    # a task without an end was over when the next one began: an executor of one core runs one at a time
    starts = [task.start_ns for _, task in tasks]
    for (job, task), next_ns in zip(tasks, [*starts[1:], end_ns], strict=False):
        asked_ns = max(job.start_ns, free_ns or job.start_ns)
        lane.add(
            "spark", "wait for a job", free_ns, min(asked_ns, task.start_ns), DRIVER_LOG, waits_for=("driver",),
            resolution_ns=RESOLUTION_NS,
        )  # fmt: skip
        lane.add("spark", "schedule task", asked_ns, task.start_ns, DRIVER_LOG, resolution_ns=RESOLUTION_NS)
        done_ns = finished.get(task.id)
        free_ns = done_ns or next_ns
        lane.add(
            "spark", f"task of {job.name}", task.start_ns, free_ns, f"{DRIVER_LOG}, {EXECUTOR_LOG}",
            resolution_ns=RESOLUTION_NS, truncated=done_ns is None, attrs={"task": task.id, "job": job.id},
        )  # fmt: skip
    lane.add(
        "spark", "wait for a job", free_ns, end_ns, EXECUTOR_LOG, waits_for=("driver",), resolution_ns=RESOLUTION_NS
    )


def _add_joins(
    lane: LaneBuilder, process: RecordedProcess, rank: str | None, consumed_ns: Callable[[int], int | None]
) -> None:
    """After its last block a feed task waits until the trainer has taken everything, looking once a second."""
    exhausted = [instant for instant in process.instants if instant.name == "feed exhausted"]
    for feed in process.named("feed task"):
        ends = [instant.at_ns for instant in exhausted if feed.start_ns <= instant.at_ns <= feed.end_ns]
        if ends:
            lane.add(
                "feed", "join queue", ends[-1], feed.end_ns, OWN_MARK, process=process.process,
                waits_for=(rank,) if rank else (), released_ns=consumed_ns(feed.end_ns),
                cause=FEED_JOIN, cause_period_ns=FEED_JOIN_PERIOD_NS, truncated=feed.truncated,
            )  # fmt: skip


def _end(evidence: Evidence, container: str, marks: dict[str, int]) -> int | None:
    life = evidence.container_jvm(container)
    return (life.exit_ns if life else None) or marks.get("EXITED") or marks.get("COMPLETED")


def _index(executor: str) -> int:
    return int(executor) if executor.isdigit() else 0
