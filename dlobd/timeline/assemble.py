"""Assembles the evidence of a bundle into one trace. Pure: the same files give the same trace, without a cluster.

    client -> driver -> { application, executor-1 .. executor-n } -> rank-0 .. rank-(n-1)

A task slot beside the first of an executor has its own lane: executor-1/slot-2.

Each arrow is a wait of the left lane for the right lane; each lane has a module. Without Spark, YARN and HDFS, the
driver is the parent process of the ranks:

    client -> driver -> rank-0 .. rank-(n-1)
"""

import gc
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import Span, Spans, Trace
from dlobd.columns import NONE
from dlobd.evidence import slots, yarn
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.search import missing, not_measured, unknown
from dlobd.evidence.log4j import RESOLUTION_NS, LogLine
from dlobd.evidence.recorder import TRAINING, Instant, RecordedProcess, RecordedSpan, trainers
from dlobd.evidence.resources import SampledHost
from dlobd.evidence.timestamp import error_of, widened_event, widened_span
from dlobd.evidence.topology import DRIVER_LANE
from dlobd.schema import MAIN_LANE, NOT_PART, Clip, Event, NotMeasured, Process
from dlobd.spans import Details, InstantKind
from dlobd.timeline import application as application_lane
from dlobd.timeline import driver as driver_lane
from dlobd.timeline import executor as executor_lane
from dlobd.timeline import hdfs_use
from dlobd.timeline import ranks as rank_lane
from dlobd.timeline.application import NM_LOG, REST_RESOLUTION_NS, RM_LOG, RM_REST
from dlobd.timeline.builder import OWN_MARK, LaneBuilder, Part, Resolve, begin_ns, placed, without_roles
from dlobd.timeline.driver import CLIENT, JVM_LOG, last_notice_ns, last_task
from dlobd.timeline.executor import DRIVER_LOG, lane_of, lane_of_task
from dlobd.timeline.ranks import ON_DRIVER, Rank, last_executor, whole_rank
from dlobd.timeline.ranks import ranks as ranks_of
from dlobd.tracing.clock import tick_ns

FEEDS = (kinds.FEED_JOB, kinds.TFCLUSTER_TRAIN)
"""Waits of the driver that end with Spark's tasks, and that trainers can delay."""

IN_OWN_MAIN = NotMeasured(
    "channel",
    "tensorflow",
    "your main function is one span: its steps and their exchanges are not measured separately",
)
IN_OWN_STEPS = NotMeasured(
    "channel", "tensorflow", "exchanges of gradients are part of your steps: they are not measured separately"
)
Message = tuple[str, int | None, int | None]
"""Name, send time and receive time of a message; None for a time that no log has."""

NO_RANKS = NotMeasured("channel", "", "no rank of TensorFlowOnSpark ran")
IN_USER_CODE = NotMeasured("hdfs", "user", "reads and writes of HDFS by your code, or by PySpark's loop around it")

PLAIN_PROCESSES = tuple(
    NotMeasured(layer, "", f"{NOT_PART}: plain processes on local files") for layer in ("yarn", "spark", "feed", "hdfs")
)
WITHOUT_YARN = NotMeasured("yarn", "", f"{NOT_PART}: Spark's own Master and Workers start the executors")

RESOLUTIONS_NS = {RM_LOG: RESOLUTION_NS, NM_LOG: RESOLUTION_NS, DRIVER_LOG: RESOLUTION_NS, RM_REST: REST_RESOLUTION_NS}
"""Resolution of each source; 1 ns for all other sources except /proc."""

TRAINING_BEGINS = (kinds.TENSORFLOW_IMPORTED, kinds.RANKS_JOINED, kinds.FIRST_BATCH, kinds.FIRST_STEP_DONE)
TRAINING_ENDS = (kinds.LAST_STEP_DONE, kinds.SAVED, kinds.EVALUATED)

Row = tuple[InstantKind, LogLine | Instant | int | None, str]
"""An event, its time or its record, and the source."""

T = TypeVar("T")


def read(bundle: Path) -> tuple[Trace, SampledHost | None]:
    """Return the trace of a bundle, and the samples of its machine. The rest of the evidence is freed."""
    evidence = Evidence(bundle)
    found = assemble(evidence), evidence.resources
    del evidence
    gc.collect()  # it has reference cycles
    return found


def assemble(evidence: Evidence) -> Trace:
    """Return the trace of a run. Raises BundleError if nothing was submitted."""
    if not evidence.topology.has_spark:
        return _of_plain_processes(evidence)
    window = evidence.window
    ranks = ranks_of(evidence)
    waits = _Waits(evidence, ranks)
    parts = _client(evidence)
    parts += driver_lane.build(evidence, evidence.host, ranks, waits.resolve, waits.held_ns)
    on_executors = []
    for application in evidence.applications:
        parts += application_lane.build(application, evidence.host)
        on_executors += [(application, *executor) for executor in application.executor_containers.items()]
    ranks_on, of_lanes = _grouped(ranks, lambda rank: rank.executor), _grouped(ranks, lambda rank: rank.lane)
    for application, executor, container in on_executors:
        here = ranks_on.get(executor, [])
        in_task = [(rank, *bounds) for rank in here if (bounds := waits.in_task(rank))]
        work = executor_lane.Executor(executor, container, waits.tasks[executor], here, in_task)
        lane = executor_lane.build(application, evidence.host, work, waits.resolve)
        parts += lane
        start_ns = begin_ns(lane)
        puts = [process.named(kinds.PUT) for process in evidence.recorded_in(container)]
        for rank in here:
            inside = any(rank is other for other, _, _ in in_task)
            # the same role may have run on another executor before
            other_ns = [r.end_ns for r in of_lanes[rank.lane] if r.start_ns < rank.start_ns]
            before_ns = min(max([*other_ns, rank.start_ns if start_ns is None else start_ns]), rank.start_ns)
            own = executor_lane.lanes_of(application, executor)
            parts += rank_lane.build(rank, own, before_ns, inside, waits.exit_of(rank), waits.resolve, puts)
            start_ns = rank.end_ns
    parts += _on_driver(evidence, ranks, waits.resolve)
    parts += rank_lane.servers(evidence)
    parts += _children(evidence)
    parts += hdfs_use.datanode_calls(evidence, parts)
    parts += hdfs_use.close_retries(evidence, parts)
    startup, teardown = _anatomy(evidence, ranks)
    spans = Spans.joined(widened_span(part) if isinstance(part, Span) else part for part in parts)
    if evidence.topology.by_hand:
        spans = _inside(spans, window["exec_ns"], window["exit_ns"])
    absences = missing(evidence)
    spans = unknown(spans, absences)
    in_script = (_in_own_main(ranks), IN_USER_CODE, *_in_python_workers(evidence))
    lacking = in_script if evidence.topology.user_script else rank_lane.exchange_not_measured(evidence.job)
    if not evidence.topology.has_yarn:
        master = evidence.topology.own_master
        by_script = f"{NOT_PART}: the script set its master to {master}"
        lacking = (*lacking, replace(WITHOUT_YARN, why=by_script) if master else WITHOUT_YARN)
    return Trace(
        start_ns=window["exec_ns"],
        end_ns=window["exit_ns"],
        spans=spans,
        anchors=evidence.anchors,
        intervals=tuple(hdfs_use.intervals(evidence)),
        not_measured=(*lacking, *not_measured(absences)),
        startup=tuple(map(widened_event, startup)),
        teardown=tuple(map(widened_event, teardown)),
        clips=(*reversed_messages(evidence), *reversed_waits(spans)),
    )


def _of_plain_processes(evidence: Evidence) -> Trace:
    window, parent = evidence.window, evidence.driver_process
    ranks = [whole_rank(process, "") for process in trainers(evidence.processes)]
    parts = [*_client(evidence), *_parent(evidence, ranks)]
    exits = [instant for instant in parent.instants if instant.name == kinds.RANK_EXITED] if parent else []
    exit_ns = {instant.attrs["rank"]: instant.at_ns for instant in reversed(exits)}
    for rank in ranks:
        parts += rank_lane.build(
            rank, (DRIVER_LANE,), window["started_ns"], False, exit_ns.get(rank.process.rank), without_roles
        )
    parts += rank_lane.servers(evidence)
    startup, teardown = _plain_anatomy(evidence, ranks)
    absences = missing(evidence)
    return Trace(
        start_ns=window["exec_ns"],
        end_ns=window["exit_ns"],
        spans=unknown(Spans.joined(parts), absences),
        anchors=evidence.anchors,
        not_measured=(*rank_lane.exchange_not_measured(evidence.job), *PLAIN_PROCESSES, *not_measured(absences)),
        startup=startup,
        teardown=teardown,
    )


def _parent(evidence: Evidence, ranks: list[Rank]) -> list[Part]:
    window, python = evidence.window, evidence.driver_process
    lane = LaneBuilder(DRIVER_LANE, Process(evidence.host, "driver", 0, window["pid"]))
    if python is None:
        return []

    def resolve(span: RecordedSpan, wait: Details) -> Details:
        if kinds.WAIT_TRAINERS not in wait.get("waits_for", ()):
            return without_roles(span, wait)
        return {**wait, "waits_for": tuple(rank.lane for rank in ranks)}  # the last rank to end releases it

    first_ns = min((span.start_ns for span in python.spans), default=python.opened_ns)
    last_ns = max((span.end_ns for span in python.spans), default=python.last_ns)
    lane.add(kinds.PARENT_PYTHON_STARTS, window["started_ns"], first_ns, f"{CLIENT}, {OWN_MARK}")
    lane.add_recorded(python, resolve=resolve)
    lane.add(kinds.PARENT_PYTHON_EXITS, last_ns, window["exit_ns"], f"{OWN_MARK}, {CLIENT}")
    return lane.parts


def _in_own_main(ranks: Sequence[Rank]) -> NotMeasured:
    if not ranks:
        return NO_RANKS
    unknown_steps = next((at for rank in ranks if (at := rank.process.instant(kinds.STEPS_UNKNOWN))), None)
    if unknown_steps:
        why = f"the steps of your main function, and their exchanges, are unknown: {unknown_steps.attrs['cause']}"
        return replace(IN_OWN_MAIN, why=why)
    if framework := next((rank.framework for rank in ranks if rank.framework), ""):
        return replace(
            IN_OWN_STEPS, why=f"{framework}'s all-reduce is part of your steps: it is not measured separately"
        )
    return IN_OWN_STEPS if any(rank.spans.is_step.any() for rank in ranks) else IN_OWN_MAIN


def _in_python_workers(evidence: Evidence) -> Iterator[NotMeasured]:
    marks = (process.instant(kinds.PARTS_UNKNOWN) for process in evidence.processes)
    if mark := next(filter(None, marks), None):
        yield NotMeasured("spark", "user", f"parts of tasks in Python workers: unknown, because {mark.attrs['cause']}")


def _inside(spans: Spans, start_ns: int, end_ns: int) -> Spans:
    """Return spans clipped to the window: the driver of an application submitted by hand outlives the window."""
    clipped = replace(spans, start_ns=np.maximum(spans.start_ns, start_ns), end_ns=np.minimum(spans.end_ns, end_ns))
    return clipped.where(clipped.start_ns < clipped.end_ns)


def _client(evidence: Evidence) -> list[Part]:
    window, waits_for = evidence.window, evidence.topology.client_waits_for
    lane = LaneBuilder(MAIN_LANE, Process(evidence.host, MAIN_LANE, 0, 0))
    if evidence.topology.by_hand:
        bounds, resolution_ns = (window["exec_ns"], window["exit_ns"]), REST_RESOLUTION_NS
        lane.add(kinds.APPLICATION, *bounds, RM_REST, waits_for=(waits_for,), resolution_ns=resolution_ns)
        return lane.parts
    started_ns, source = window["started_ns"], CLIENT
    start, wait = kinds.START_PARENT, kinds.WAIT_FOR_PARENT
    if evidence.topology.has_spark:
        start, wait = kinds.START_SPARK_SUBMIT, kinds.WAIT_FOR_SPARK_SUBMIT
    lane.add(start, window["exec_ns"], started_ns, source)
    lane.add(wait, started_ns, window["exit_ns"], source, waits_for=(waits_for,))
    return lane.parts


def _on_driver(evidence: Evidence, ranks: Sequence[Rank], resolve: Resolve) -> Iterator[Part]:
    """Yield the spans of the trainers that the driver started."""
    own = [rank for rank in ranks if rank.executor == ON_DRIVER]
    begun_ns = evidence.driver_process.opened_ns if evidence.driver_process else 0
    for rank in own:
        before_ns = max([other.end_ns for other in own if other.end_ns <= rank.start_ns], default=begun_ns)
        yield from rank_lane.build(rank, (DRIVER_LANE,), before_ns, False, None, resolve)


def _children(evidence: Evidence) -> Iterator[Part]:
    """Yield the spans of processes that user code forked, in lanes that no other lane waits for: the time of the code
    that forked them is in its own lane."""
    for process in evidence.children:
        executor = evidence.executor_of.get(process.path.parent.name)
        lane = f"{lane_of(executor) if executor else DRIVER_LANE}/child-{process.process.pid}"
        yield placed(lane, process, process.spans)


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


def reversed_messages(evidence: Evidence) -> Iterator[Clip]:
    """Yield messages between driver and executors that arrived before they were sent, beyond the uncertainty."""
    for what, sent_ns, received_ns in messages(evidence):
        if sent_ns is None or received_ns is None:
            continue
        error_ns = 2 * RESOLUTION_NS + error_of(sent_ns) + error_of(received_ns)
        if sent_ns - received_ns > error_ns:
            yield Clip("inconsistent", what, sent_ns - received_ns)


def messages(evidence: Evidence) -> Iterator[Message]:
    """Yield the messages between driver and executors."""
    driver = evidence.driver.log
    for executor, log in evidence.executors.items():
        here, registered = lane_of(executor), at_ns(driver.registered.get(executor))
        yield f"{here}: registration", at_ns(log.connecting or log.first), registered
        yield f"{here}: answer to the registration", registered, at_ns(log.registered)
    for job in driver.jobs:
        for task in job.tasks:
            if (own := evidence.executors.get(task.executor)) is None:
                continue
            here = lane_of(task.executor)
            yield f"{here}: task {task.id}", task.start_ns, own.got.get(task.id)
            yield f"{here}: result of task {task.id}", own.finished.get(task.id), task.end_ns


def at_ns(line: LogLine | None) -> int | None:
    """Return the time of a line; None without a line."""
    return line.at_ns if line else None


def reversed_waits(spans: Spans) -> Iterator[Clip]:
    """Yield waits that ended before their release, beyond the uncertainty of both times."""
    early_ns = spans.released_ns - spans.end_ns  # without a release it is below 0
    rows = np.flatnonzero((early_ns > 2 * spans.resolution_ns) & ~spans.truncated)
    for id_, ns in zip(spans.ids(rows), early_ns[rows].tolist(), strict=True):
        yield Clip("inconsistent", id_, ns)


class _Waits:
    """Resolver of recorded waits, which name roles: finds the lane and the time that released them."""

    def __init__(self, evidence: Evidence, ranks: Sequence[Rank]) -> None:
        self._evidence = evidence
        self._ranks = ranks
        self._lane_of = {id(rank.process): rank.lane for rank in reversed(ranks) if rank.whole}
        self._containers = evidence.executor_containers
        pairs = ((job, task) for job in evidence.driver.log.jobs for task in job.tasks)
        by_executor = _grouped(pairs, lambda pair: pair[1].executor)
        self.tasks = {e: sorted(by_executor.get(e, []), key=lambda pair: pair[1].start_ns) for e in self._containers}
        self._finished = {executor: log.finished for executor, log in evidence.executors.items()}
        # times and lanes of reservations
        self._reservations = sorted((s.end_ns, lane) for s, lane in self._named(kinds.REGISTER_RESERVATION))
        # TensorFlowOnSpark as published records no reservations; the last start task to begin reserves last
        self._starts = sorted((s.start_ns, lane) for s, lane in self._named(kinds.START_TASK))

    def _named(self, name: str) -> Iterator[tuple[RecordedSpan, str]]:
        for executor, container in self._containers.items():
            for process in self._evidence.recorded_in(container):
                for span in process.named(name):
                    yield span, self._lane(executor, process, span.start_ns)

    def _lane(self, executor: str, process: RecordedProcess, at_ns: int) -> str:
        task = int(slots.Served(process).at(np.array([at_ns]))[0])
        own = self._lane_of.get(id(process))
        return own or lane_of(executor, self._evidence.slot_of(executor, None if task == NONE else task))

    def exit_of(self, rank: Rank) -> int | None:
        """Return the time at which the executor's task noticed the exit of its trainer; None if it did not wait."""
        container = self._containers[rank.executor]
        ends = [s.end_ns for p in self._evidence.recorded_in(container) for s in p.named(kinds.WAIT_FOR_TRAINER)]
        return max(ends, default=None)

    def in_task(self, rank: Rank) -> tuple[int, int] | None:
        """Return start and end of a trainer inside a Spark task; None for a separate process."""
        if not rank.whole:
            return rank.start_ns, rank.end_ns
        trainer = next(iter(rank.named(kinds.TRAINER)), None)
        if trainer is None or not rank.process.forked:
            return None  # a separate process, for which the task waits in a recorded wait
        here = self._evidence.recorded_in(self._containers[rank.executor])
        if rank.process.parent in {process.process.pid for process in here if process.named(kinds.START_TASK)}:
            return None  # its start task has ended; a feed's task may contain the trainer by chance
        for _, task in self.tasks[rank.executor]:
            end_ns = self._finished[rank.executor].get(task.id)
            if task.start_ns <= trainer.start_ns and (end_ns is None or trainer.end_ns <= end_ns):
                return rank.start_ns, trainer.end_ns
        return None

    def held_ns(self, wait: RecordedSpan) -> int | None:
        """Return the end of the time in which trainers delayed a feed; None if they discarded blocks."""
        if wait.name not in FEEDS or (last := last_task(self._evidence, wait)) is None:
            return None
        task = last[1]
        fed = executor_lane.latest([r for r in self._ranks if r.executor == task.executor], wait.end_ns)
        done_ns = self._finished.get(task.executor, {}).get(task.id)
        if fed is None or done_ns is None:
            return None
        taken_ns = executor_lane.consumed_ns(fed, done_ns)
        busy = [rank.finished[1] for rank in self._at_work(wait)]
        return None if taken_ns is None else min(max(taken_ns, *busy), wait.end_ns) if busy else taken_ns

    def _at_work(self, wait: RecordedSpan) -> list[Rank]:
        """Return the ranks that trained during a wait. No lane waits for a node that serves until it is killed."""
        training = (rank for rank in self._ranks if rank.role in TRAINING and rank.start_ns < wait.end_ns)
        return [rank for rank in training if rank.finished > (False, wait.start_ns)]

    def _slept_for(self, sleep: RecordedSpan, trainer: Rank | None) -> Details:
        """Return the release of a sleep in TFCluster.shutdown: the end of Spark's last task, or of the trainer."""
        jobs = [j for j in self._evidence.driver.log.jobs if j.end_ns and sleep.start_ns < j.end_ns <= sleep.end_ns]
        ended = max(jobs, key=lambda job: job.end_ns or 0, default=None)
        if ended and (tasks := [task for task in ended.tasks if task.end_ns is not None]):
            last = max(tasks, key=lambda task: task.end_ns or 0)
            return {"waits_for": (lane_of_task(self._evidence, last),), "released_ns": last.end_ns}
        return trainer.releases(sleep) if trainer else {"waits_for": ()}

    def _timed_out(self, wait: RecordedSpan) -> bool:
        """Return True if nodes were missing at the end of TensorFlowOnSpark's wait for their reservations."""
        python = self._evidence.driver_process
        missed = [i for i in python.instants if i.name == kinds.NODES_MISSING] if python else []
        return any(wait.start_ns <= instant.at_ns <= wait.end_ns for instant in missed)

    def resolve(self, span: RecordedSpan, wait: Details) -> Details:
        """Turn a recorded wait into fields of a `Span`."""
        target = next(iter(wait.get("waits_for", ())), "")
        if span.kind is kinds.WAIT_FOR_STREAM:
            return {**wait, "cause_period_ns": span.end_ns - span.start_ns}
        if target == kinds.WAIT_LAST_RESERVATION and self._timed_out(span):
            last = _last_before(self._reservations or self._starts, span.end_ns)
            since_ns = max(last[0], span.start_ns) if last else span.start_ns
            seen: Details = {"waits_for": (last[1],), "released_ns": last[0]} if last else {"waits_for": ()}
            cause = kinds.RESERVATION_TIMEOUT
            return {"cause": cause.text(), "cause_period_ns": span.end_ns - since_ns, **seen}
        if target == kinds.WAIT_LAST_RESERVATION and (last := _last_before(self._reservations, span.end_ns)):
            return {**wait, "waits_for": (last[1],), "released_ns": last[0]}
        if target == kinds.WAIT_LAST_RESERVATION and (last := _last_before(self._starts, span.end_ns)):
            return {**wait, "waits_for": (last[1],)}
        if target == kinds.WAIT_TRAINERS:
            training = self._at_work(span)
            trainer = max(training, key=lambda rank: rank.finished, default=None)
            if span.name == kinds.SLEEP:
                return {**wait, **self._slept_for(span, trainer)}
            if trainer is None:
                return {**wait, "waits_for": ()}
            if span.name == kinds.AWAIT_TRAINERS and last_notice_ns(self._evidence.driver_process, span):
                return {"waits_for": (trainer.lane,)}  # a done notice released it, without a poll
            done = trainer.named(kinds.WRITE_DONE_MARKER)
            # the marker exists before the call that writes it returns
            released = min(done[-1].end_ns, span.end_ns) if done and span.name == kinds.AWAIT_TRAINERS else None
            return {**wait, "waits_for": (trainer.lane,), "released_ns": released}
        return {**wait, "waits_for": tuple(w for w in wait.get("waits_for", ()) if not w.startswith("@"))}


def _last_before(marks: Sequence[tuple[int, str]], end_ns: int) -> tuple[int, str] | None:
    """Return the last of the sorted marks before the end of a wait, because a script may start several clusters."""
    last = bisect_right(marks, end_ns, key=lambda mark: mark[0])
    return marks[last - 1] if last else None


def _anatomy(evidence: Evidence, ranks: Sequence[Rank]) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return the events of start-up, of the first application, and of teardown, of the last, each sorted by time.

    Start-up follows the executor that was ready last. Each event has its source and resolution; an event without a
    source is omitted, never guessed.
    """
    first, final = evidence.applications[0], evidence.applications[-1]
    last = last_executor(first, ranks)
    rank = next((rank for rank in ranks if rank.executor == last), None)
    chief = next((rank for rank in ranks if rank.role == "chief"), None)
    lane = lane_of(last) if last else ""
    startup = [*_dated(_submission_events(first)), *_dated(_executor_events(first, last, rank), lane)]
    return _sorted(startup), _sorted(_dated(_teardown_events(final, chief or rank)))


def _plain_anatomy(evidence: Evidence, ranks: Sequence[Rank]) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return the events of start-up and teardown of plain processes, for the rank whose first step was done last."""
    window, parent = evidence.window, evidence.driver_process
    firsts = [(at.at_ns, rank) for rank in ranks if (at := rank.process.instant(kinds.FIRST_STEP_DONE))]
    slowest = max(firsts, key=lambda pair: pair[0])[1] if firsts else None
    chief = next((rank.process for rank in ranks if rank.role == "chief"), None)
    begun: list[Row] = [(kinds.PARENT_EXEC, window["exec_ns"], CLIENT)]
    begun += [(kinds.PARENT_PYTHON_UP, parent.process.start_ns, "/proc")] if parent else []
    startup, ended = [*_dated(begun)], [*_dated([(kinds.PARENT_EXIT, window["exit_ns"], CLIENT)])]
    if slowest:
        startup += _dated([(kinds.RANK_PROCESS_UP, slowest.process.opened_ns, OWN_MARK)], slowest.lane)
        startup += _dated(_instants(slowest.process, *TRAINING_BEGINS))
    if chief:
        ended += _dated(_instants(chief, *TRAINING_ENDS))
    if parent:
        ended += _dated(_instants(parent, kinds.LAUNCHER_SHUT_DOWN))
    return _sorted(startup), _sorted(ended)


def _instants(process: RecordedProcess, *events: InstantKind) -> Iterator[Row]:
    for event in events:
        yield event, process.instant(event), OWN_MARK


def _sorted(found: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(found, key=lambda event: event.at_ns))


def _dated(rows: Iterable[Row], lane: str = "") -> Iterator[Event]:
    for event, at, source in rows:
        if at is not None:
            at_ns = at if isinstance(at, int) else at.at_ns
            resolution_ns = tick_ns() if source == "/proc" else RESOLUTIONS_NS.get(source, 1)
            yield Event(event, at_ns, source, resolution_ns=resolution_ns, lane=lane)


def _submission_events(evidence: Evidence) -> Iterator[Row]:
    window, am_name, python = evidence.window, evidence.attempts.am, evidence.driver_process
    am = evidence.yarn.containers.get(am_name, yarn.Marks()).at
    if evidence.topology.by_hand:
        yield kinds.APPLICATION_SUBMITTED, window["exec_ns"], RM_REST
    else:
        yield kinds.SPARK_SUBMIT_EXEC, window["exec_ns"], CLIENT
    yield kinds.SUBMIT_JVM_UP, evidence.submitter.life.start_ns if evidence.submitter.life else None, JVM_LOG
    if python:
        yield kinds.DRIVER_PYTHON_UP, python.process.start_ns, "/proc"
        yield kinds.SPARK_CONTEXT_START, python.instant(kinds.SPARK_CONTEXT_START), OWN_MARK
    yield kinds.SUBMITTED, evidence.submitter.log.points.get("submitting"), DRIVER_LOG
    yield kinds.APPLICATION_ACCEPTED, evidence.yarn.application.at.get("ACCEPTED"), RM_LOG
    yield kinds.AM_ALLOCATED, am.get("ALLOCATED"), RM_LOG
    yield kinds.AM_START_REQUESTED, am.get("START_REQUEST"), NM_LOG
    yield kinds.AM_LOCALISED, am.get("SCHEDULED"), NM_LOG
    life = evidence.container_jvm(am_name) if am_name else None
    yield kinds.AM_PROCESS_UP, life.start_ns if life else None, "AM JVM log"
    yield kinds.AM_REGISTERED, evidence.yarn.attempt(am_name).at.get("RUNNING"), RM_LOG


def _executor_events(evidence: Evidence, executor: str | None, rank: Rank | None) -> Iterator[Row]:
    container = evidence.executor_containers.get(executor or "")
    if executor is None or container is None:
        return
    marks, life = evidence.yarn.containers.get(container, yarn.Marks()).at, evidence.container_jvm(container)
    yield kinds.EXECUTOR_ALLOCATED, marks.get("ALLOCATED"), RM_LOG
    yield kinds.EXECUTOR_START_REQUESTED, marks.get("START_REQUEST"), NM_LOG
    yield kinds.EXECUTOR_LOCALISED, marks.get("SCHEDULED"), NM_LOG
    yield kinds.EXECUTOR_PROCESS_UP, life.start_ns if life else None, "executor JVM log"
    yield kinds.EXECUTOR_REGISTERED, evidence.driver.log.registered[executor], DRIVER_LOG
    here = evidence.recorded_in(container)
    workers = [p.opened_ns for p in here if p.forked and p.process.role == "python-worker"]
    yield kinds.PYTHON_WORKER_UP, min(workers, default=None), OWN_MARK
    if not rank:
        return
    reserved = [span.end_ns for process in here for span in process.named(kinds.AWAIT_RESERVATIONS)]
    yield kinds.LAUNCHER_RENDEZVOUS_DONE, min(reserved, default=None), OWN_MARK
    if rank.whole:
        yield kinds.TRAINER_FORKED, rank.start_ns, OWN_MARK
    if rank.main:
        yield kinds.USER_MAIN_CALLED, rank.main.start_ns, OWN_MARK
        imported = [span.end_ns for span in rank.named(kinds.IMPORT_TENSORFLOW) if not span.truncated]
        yield kinds.TENSORFLOW_IMPORTED, min(imported, default=None), OWN_MARK
        taken = rank.named(kinds.GET, kinds.INPUT_WAIT).first_ended
        yield kinds.FIRST_BATCH, taken.end_ns if taken else None, OWN_MARK
        yield kinds.FIRST_STEP_DONE, next((span.end_ns for span in rank.named(kinds.FIRST_STEP)), None), OWN_MARK
    yield from _instants(rank.process, *TRAINING_BEGINS)


def _teardown_events(evidence: Evidence, chief: Rank | None) -> Iterator[Row]:
    if chief:
        yield from _instants(chief.process, *TRAINING_ENDS)
        last = chief.process.steps().last_ended if chief.main else None
        yield kinds.LAST_STEP_DONE, last.end_ns if last else None, OWN_MARK
        if chief.main and not chief.main.truncated:
            yield kinds.USER_MAIN_ENDED, chief.main.end_ns, OWN_MARK
    if python := evidence.driver_process:
        for event in (kinds.LAUNCHER_SHUT_DOWN, kinds.SPARK_CONTEXT_STOPPED):
            yield event, next((i for i in python.instants if i.name == event and evidence.has(i.at_ns)), None), OWN_MARK
    yield kinds.APPLICATION_FINISHED, evidence.yarn.application.at.get("FINISHED"), RM_LOG
    yield kinds.DRIVER_JVM_EXIT, evidence.driver.life.exit_ns if evidence.driver.life else None, JVM_LOG
    if not evidence.topology.by_hand:
        yield kinds.SPARK_SUBMIT_EXIT, evidence.window["exit_ns"], CLIENT
