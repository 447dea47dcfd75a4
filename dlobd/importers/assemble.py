"""A bundle's evidence becomes one trace. Pure: the same files give the same trace, without a cluster.

    client -> driver -> { application, executor-1 .. executor-n } -> rank-0 .. rank-(n-1)

Each arrow is a wait of the lane on the left for the lane on the right; the modules `*_lane` say which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlobd.importers import anatomy, application_lane, driver_lane, executor_lane, hdfs_use, native, rank_lane
from dlobd.importers.builder import LaneBuilder
from dlobd.importers.evidence import Evidence
from dlobd.importers.recorder import RecordedProcess, RecordedSpan
from dlobd.schema import MAIN_LANE, NotMeasured, Process, Span, Trace

NOT_MEASURED = (
    NotMeasured(
        "channel",
        "tensorflow",
        "TensorFlow's ring all-reduce runs inside each step, over its own gRPC: no boundary of ours lies in between",
    ),
)

WITHOUT_YARN = NotMeasured("yarn", "", "not part of this way: Spark's own Master and Workers hand out the executors")


def assemble(bundle: Path) -> Trace:
    """The trace of a run.

    Raises:
        BundleError: nothing was submitted, so that there is no window.
    """
    evidence = Evidence(bundle)
    if evidence.native:
        return native.assemble(evidence, NOT_MEASURED[0])
    window = evidence.window
    host = window["anchors"][0]["domain"].split("/")[0]
    ranks = _ranks(evidence)
    waits = _Waits(evidence, ranks)
    spans = _client(window, host, driver_lane.SUBMITTER if evidence.cluster_mode else driver_lane.LANE)
    registered = {e: line.at_ns for e, line in evidence.driver_log.registered.items() if e in evidence.executors}
    last_executor = max(registered, key=lambda e: registered[e], default=None)
    spans += driver_lane.build(evidence, host, last_executor, waits.resolve)
    spans += application_lane.build(evidence, host)
    for executor in evidence.executors:
        rank = ranks.get(executor)
        lane = executor_lane.build(
            evidence,
            executor,
            host,
            _tasks(evidence, executor),
            rank_lane.lane_of(rank) if rank else None,
            waits.consumed_by(rank),
            waits.resolve,
            waits.in_task(executor),
        )
        spans += lane
        if rank:
            start_ns = min((span.start_ns for span in lane), default=rank.opened_ns)
            in_task = waits.in_task(executor) is not None
            exit_ns = waits.exit_of(executor)
            spans += rank_lane.build(rank, executor_lane.lane_of(executor), start_ns, in_task, exit_ns, waits.resolve)
    spans += hdfs_use.close_retries(evidence, spans)
    startup, teardown = anatomy.events(evidence, ranks)
    return Trace(
        start_ns=window["exec_ns"],
        end_ns=window["exit_ns"],
        spans=tuple(spans),
        anchors=evidence.anchors,
        intervals=tuple(hdfs_use.intervals(evidence)),
        not_measured=NOT_MEASURED if evidence.on_yarn else (*NOT_MEASURED, WITHOUT_YARN),
        startup=startup,
        teardown=teardown,
    )


def _client(window: Mapping[str, Any], host: str, submitted: str) -> list[Span]:
    lane = LaneBuilder(MAIN_LANE, Process(host, MAIN_LANE, 0, 0))
    lane.add("client", "start spark-submit", window["exec_ns"], window["started_ns"], driver_lane.CLIENT)
    lane.add(
        "client", "wait for spark-submit", window["started_ns"], window["exit_ns"], driver_lane.CLIENT,
        waits_for=(submitted,),
    )  # fmt: skip
    return lane.spans


def _ranks(evidence: Evidence) -> dict[str, RecordedProcess]:
    """Executor id to the trainer process that was forked in its container."""
    return {
        executor: process
        for executor, container in evidence.executor_containers.items()
        for process in evidence.recorded_in(container)
        if process.process.role in executor_lane.RANK_ROLES
    }


def _tasks(evidence: Evidence, executor: str) -> list[Any]:
    tasks = [(job, task) for job in evidence.driver_log.jobs for task in job.tasks if task.executor == executor]
    return sorted(tasks, key=lambda pair: pair[1].start_ns)


class _Waits:
    """Finds what released a recorded wait. Recorded waits name it by role, because no process knows lanes."""

    def __init__(self, evidence: Evidence, ranks: Mapping[str, RecordedProcess]) -> None:
        self._evidence = evidence
        self._ranks = ranks
        self._containers = evidence.executor_containers
        self._tasks = {executor: _tasks(evidence, executor) for executor in self._containers}
        self._finished = {executor: log.finished for executor, log in evidence.executors.items()}
        # the lane in which the last reservation was handed in, and when
        self._last_reservation = max(
            ((s.end_ns, lane) for s, lane in self._named("register reservation")), default=None
        )
        # TensorFlowOnSpark as published does not tell; its last start task to begin is the last to reserve
        self._last_start = max(((s.start_ns, lane) for s, lane in self._named("start task")), default=None)

    def _named(self, name: str) -> Iterator[tuple[RecordedSpan, str]]:
        """The spans of that name in all containers, with their lanes."""
        for executor, container in self._containers.items():
            for process in self._evidence.recorded_in(container):
                for span in process.named(name):
                    yield span, self._lane(executor, process)

    def _lane(self, executor: str, process: RecordedProcess) -> str:
        is_rank = process.process.role in executor_lane.RANK_ROLES
        return rank_lane.lane_of(process) if is_rank else executor_lane.lane_of(executor)

    def exit_of(self, executor: str) -> int | None:
        """When the executor's task saw its trainer's process end, if it waited for it."""
        container = self._containers[executor]
        ends = [s.end_ns for p in self._evidence.recorded_in(container) for s in p.named("wait for trainer")]
        return max(ends, default=None)

    def in_task(self, executor: str) -> tuple[int, int] | None:
        """From when to when the executor's trainer ran inside a Spark task; None if it was forked beside it."""
        process = self._ranks.get(executor)
        trainer = next(iter(process.named("trainer")), None) if process else None
        if process is None or trainer is None or not process.forked:
            return None  # a process of its own, which the task waits for by a recorded wait
        for _, task in self._tasks[executor]:
            end_ns = self._finished[executor].get(task.id)
            if task.start_ns <= trainer.start_ns and (end_ns is None or trainer.end_ns <= end_ns):
                return process.opened_ns, trainer.end_ns
        return None

    def resolve(self, span: RecordedSpan, wait: dict[str, Any]) -> dict[str, Any]:
        """Fields of Span for a recorded wait."""
        target = next(iter(wait.get("waits_for", ())), "")
        if target == "@last-reservation" and self._last_reservation:
            at_ns, lane = self._last_reservation
            return {**wait, "waits_for": (lane,), "released_ns": at_ns}
        if target == "@last-reservation" and self._last_start:
            return {**wait, "waits_for": (self._last_start[1],)}
        if target == "@trainers":
            last = max(self._ranks.values(), key=_finished, default=None)
            if last is None:
                return {**wait, "waits_for": ()}
            done = last.named("write done-marker")
            released = done[-1].end_ns if done and span.name == "await trainers" else None
            return {**wait, "waits_for": (rank_lane.lane_of(last),), "released_ns": released}
        return {**wait, "waits_for": tuple(w for w in wait.get("waits_for", ()) if not w.startswith("@"))}

    def consumed_by(self, rank: RecordedProcess | None) -> Any:
        """A function from the end of a feed task to when the rank had taken the last block before it."""
        ends = [span.end_ns for span in rank.named("get")] if rank else []
        return lambda before_ns: max((end for end in ends if end <= before_ns), default=None)


def _finished(rank: RecordedProcess) -> tuple[bool, int]:
    """Orders ranks by when they had done their work; one that never did comes last. A process may live on: inside a
    Spark task it is Spark's own Python worker."""
    done = rank.named("write done-marker")
    return not done, done[-1].end_ns if done else rank.last_ns
