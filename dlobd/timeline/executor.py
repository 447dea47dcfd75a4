"""Builds the lane of one executor: start of its container, JVM, tasks, and spans of its Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.evidence import rpc, slots
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.feed import room_ns, without_reads
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.evidence.spark import Job, Task, task_of
from dlobd.evidence.topology import DRIVER_LANE
from dlobd.evidence.yarn import Marks, attempt_of
from dlobd.schema import Process
from dlobd.spans import Details
from dlobd.timeline import jvm, python_parts, torchrun
from dlobd.timeline.application import (
    EXECUTOR_START,
    RM_LOG,
    add_container_start,
    add_process_start,
    lost_ns,
    nm_heartbeat,
)
from dlobd.timeline.builder import OWN_MARK, LaneBuilder, Resolve, of_threads, place_calls
from dlobd.timeline.ranks import ROLES, Rank
from dlobd.tracing.clock import tick_ns

DRIVER_LOG = "driver log"
AM_LOG = "AM log"
EXECUTOR_LOG = "executor log"
EXECUTOR_JVM_LOG = "executor JVM log"
NOT_SPARKS = (*ROLES, kinds.TORCHRUN_ROLE)  # roles of other processes than PySpark's daemon and workers
TASK_THREAD = "Executor task launch worker for task "


def lane_of(executor: str, slot: int = slots.FIRST) -> str:
    """Return the name of the lane of an executor's task slot. That of the first slot also has its start."""
    return f"executor-{executor}" if slot == slots.FIRST else f"executor-{executor}/slot-{slot}"


def lane_of_task(evidence: Evidence, task: Task) -> str:
    """Return the lane of a task."""
    return lane_of(task.executor, evidence.slot_of(task.executor, task.id))


def lanes_of(evidence: Evidence, executor: str) -> tuple[str, ...]:
    """Return the lanes of all task slots of an executor."""
    used = {slots.FIRST, *evidence.slots.get(executor, {}).values()}
    return tuple(lane_of(executor, slot) for slot in sorted(used))


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor and its work."""

    id: str
    container: str  # the directory of its logs and spans
    tasks: Sequence[tuple[Job, Task]]  # in the order of their start
    ranks: Sequence[Rank]
    in_task: Sequence[tuple[Rank, int, int]]  # trainers inside a Spark task, with start and end


def build(evidence: Evidence, host: str, executor: Executor, resolve: Resolve) -> list[Span]:
    """Return the spans of an executor."""
    container = executor.container
    own_id = executor.id.rpartition(".")[2]  # the key of an executor of a later application names the application
    number = int(own_id) if own_id.isdigit() else 0
    lane = LaneBuilder(lane_of(executor.id), Process(host, "executor", number, 0))
    life, log = evidence.container_jvm(container), evidence.executors[executor.id]
    if evidence.topology.has_yarn:
        _add_yarn_start(lane, evidence, executor)
    elif life:  # Spark's Master and a Worker start it
        connected_ns, source = evidence.driver.log.at("connected"), f"{DRIVER_LOG}, {EXECUTOR_JVM_LOG}"
        lane.log(kinds.MASTER_STARTS_EXECUTOR, connected_ns, life.start_ns, source)
    marks = evidence.yarn.containers.get(container, Marks()).at
    registered = evidence.driver.log.registered.get(executor.id)
    ready_ns = registered.at_ns if registered else None
    end_ns = (life.exit_ns if life else None) or marks.get("EXITED") or marks.get("COMPLETED")
    jvm_ns = life.start_ns if life else None
    begun = (marks.get("RUNNING"), jvm_ns, log.first.at_ns if log.first else None)
    add_process_start(lane, EXECUTOR_START, begun, (ready_ns or end_ns, DRIVER_LOG, ready_ns is None))
    jvm.add_boot(lane, life, evidence.log4j(container), log.first, EXECUTOR_JVM_LOG, EXECUTOR_LOG)
    jvm.add_phases(lane, evidence.container_log(container), jvm.EXECUTOR, EXECUTOR_LOG, ready_ns)
    jvm.add_pauses(lane, life, jvm_ns, ready_ns, EXECUTOR_JVM_LOG)
    of_slots = {slots.FIRST: lane}
    for slot in sorted({*evidence.slots.get(executor.id, {}).values()} - {slots.FIRST}):
        of_slots[slot] = LaneBuilder(lane_of(executor.id, slot), lane.process)
    python = _Python(evidence, executor, of_slots, resolve)
    for slot, own in of_slots.items():
        tasks = [pair for pair in executor.tasks if evidence.slot_of(executor.id, pair[1].id) == slot]
        _add_tasks(own, tasks, log.finished, ready_ns, end_ns)
        _add_parts(own, evidence, executor, slot, tasks, python.busy(slot))
    for rank, start_ns, until_ns in executor.in_task:
        own = python.lane_at(rank.process, start_ns)
        own.add(kinds.TRAINER_IN_TASK, start_ns, until_ns, OWN_MARK, waits_for=(rank.lane,))
    beside = python.add()
    torchrun.add_agents(python.lane_at, evidence.recorded_in(container), executor.ranks)
    return [*(span for own in of_slots.values() for span in own.spans), *beside]


def _add_yarn_start(lane: LaneBuilder, evidence: Evidence, executor: Executor) -> None:
    container, life = executor.container, evidence.container_jvm(executor.container)
    marks = evidence.yarn.containers.get(container, Marks()).at
    am, first = evidence.am_log_of(container), evidence.executors[executor.id].first
    requested = am.requested_before(marks.get("ALLOCATED"))
    accepted_ns = evidence.yarn.attempt(container).at.get("RUNNING")
    before = [am for am in evidence.attempts.ams if attempt_of(am) < attempt_of(container)]
    if before and not evidence.topology.driver_in_container:  # an executor of a later application attempt
        lost_am_ns = lost_ns(evidence, before[-1])
        lane.log(kinds.WAIT_FOR_NEXT_AM, lost_am_ns, accepted_ns, RM_LOG, waits_for=(evidence.application_lane,))
    calls = evidence.am_calls_of(container)
    if accepted_ns is not None:
        # the ResourceManager may log the new state after it answered
        answers = [call.end_ns for call in calls if call.method == "registerApplicationMaster"]
        accepted_ns = min([accepted_ns, *answers])
    if am.requested is None or requested == am.requested.at_ns:
        lane.log(kinds.AM_PREPARES_REQUEST, accepted_ns, requested, f"{RM_LOG}, {AM_LOG}")
    elif requested is not None and (asked := [ns for ns in am.asked if am.requested.at_ns < ns <= requested]):
        # dynamic allocation: the driver changed the number of executors
        lane.log(kinds.AM_PREPARES_REQUEST, asked[-1], requested, AM_LOG)
    else:  # it replaces a lost executor: the ApplicationMaster first had to notice the loss
        lost = [at_ns for at_ns in evidence.driver.log.gone.values() if requested is not None and at_ns < requested]
        lane.log(kinds.NOTICE_LOST_EXECUTOR, max(lost, default=None), requested, f"{DRIVER_LOG}, {AM_LOG}")
    if accepted_ns is not None and requested is not None and not evidence.topology.driver_in_container:
        jvm.add_phases(lane, evidence.container_log(evidence.attempts.am_of(container)), jvm.REQUEST, AM_LOG, requested)
        main = [c for c in calls if c.thread == "main" and accepted_ns < c.start_ns < requested]
        place_calls(lane, main, AM_LOG)
    begun = (life.start_ns if life else first.at_ns if first else None, EXECUTOR_LOG)
    made = calls, evidence.start_calls.get(container)
    add_container_start(lane, marks, "executor", requested, AM_LOG, begun, nm_heartbeat(evidence), *made)


class _Python:
    """The Python daemon and workers of an executor, in the lanes of the slots whose tasks they serve."""

    def __init__(
        self, evidence: Evidence, executor: Executor, of_slots: Mapping[int, LaneBuilder], resolve: Resolve
    ) -> None:
        self._evidence, self._executor, self._lanes, self._resolve = evidence, executor, of_slots, resolve
        self._here = evidence.recorded_in(executor.container)
        self._room = _room(self._here, executor.ranks)
        self._served = {id(process): slots.Served(process) for process in self._here}

    def _slot(self, process: RecordedProcess, at_ns: int) -> int:
        if len(self._lanes) == 1:
            return slots.FIRST
        return self._evidence.slot_of(self._executor.id, self._served[id(process)].at(at_ns))

    def lane_at(self, process: RecordedProcess, at_ns: int) -> LaneBuilder:
        """Return the lane of the slot whose task a process served at a time."""
        return self._lanes[self._slot(process, at_ns)]

    def busy(self, slot: int) -> list[tuple[int, int]]:
        """Return the sorted intervals in which feed tasks of a slot read no block from Spark."""
        apart = ((process, interval) for process in self._here for interval in without_reads(process.spans))
        return sorted(interval for process, interval in apart if self._slot(process, interval[0]) == slot)

    def add(self) -> list[Span]:
        """Add the daemon and the workers. Returns the spans of concurrent workers and of other threads."""
        found: list[Span] = []
        taken: dict[int, list[tuple[int, int]]] = {slot: [] for slot in self._lanes}
        # of the workers of one task, the others wait for the worker in the barrier
        for process in sorted(self._here, key=lambda one: not one.named(kinds.BARRIER)):
            if process.process.role in NOT_SPARKS:
                continue
            who, opened_ns = process.process, process.opened_ns
            starters = [] if process.forked else self._starters(who)
            for lane in starters:
                start = who.start_ns, opened_ns, f"/proc, {OWN_MARK}"
                lane.add(kinds.START_PYTHON_DAEMON, *start, resolution_ns=tick_ns(), process=who)
            # a user's script may run several workers in one task; dlobd's own job never does
            user_worker = self._evidence.topology.user_script and process.forked
            first = process.spans[0] if user_worker and process.spans else None
            outside = _outside(process, self._executor.ranks)
            for slot, lane in self._lanes.items():
                spans = [span for span in outside if self._slot(process, span.start_ns) == slot]
                if not process.forked and len(self._lanes) > 1:  # all tasks that need a daemon wait for it
                    spans = outside if lane in starters else []
                own, beside = _one_at_a_time(spans, taken[slot] if user_worker else [])
                lane.add_recorded(process, own, resolve=partial(self._own, lane))
                _add_imports(lane, process, own)
                _add_joins(lane, process, spans, self._executor.ranks)
                second = LaneBuilder(f"{lane.lane}/python-{who.pid}", who)
                if first in spans:
                    # imports of PySpark until the first function is unpickled, inside the task that waits for them
                    of_first = second if first in beside else lane
                    of_first.add(kinds.PYTHON_WORKER_STARTS, opened_ns, first.start_ns, OWN_MARK, process=who)
                second.add_recorded(process, beside, resolve=partial(self._own, second))
                _add_imports(second, process, beside)
                found += second.spans
            lane = self._lanes[slots.FIRST]
            threads = _outside(process, self._executor.ranks, threads=True)
            found += of_threads(lane.lane, process, threads, partial(self._own, lane))
        return found

    def _starters(self, daemon: Process) -> list[LaneBuilder]:
        """Return the lanes whose tasks wait for the start of a daemon; the first lane if it is unknown."""
        waiting = [
            lane
            for lane in self._lanes.values()
            if any(s.kind is kinds.LAUNCH_PYTHON_DAEMON and s.end_ns == daemon.start_ns for s in lane.spans)
        ]
        return waiting or [self._lanes[slots.FIRST]]

    def _own(self, lane: LaneBuilder, span: RecordedSpan, wait: Details) -> Details:
        if span.name == kinds.PUT and (at_ns := self._room.get(span.start_ns)) is not None:
            # from `at_ns` on the pipe has room: the rest is the put's own time
            if at_ns <= span.start_ns:
                return {}
            if at_ns < span.end_ns:  # otherwise the pipe took the block in parts
                lane.add(kinds.WRITE_BLOCK, at_ns, span.end_ns, OWN_MARK)
        if kinds.WAIT_TRAINER in wait.get("waits_for", ()):
            rank = latest(self._executor.ranks, span.end_ns)
            if rank and span.name == kinds.SLEEP and not rank.finished[0]:
                wait["released_ns"] = min(max(rank.finished[1], span.start_ns), span.end_ns)
            return {**wait, "waits_for": (rank.lane,) if rank else ()}
        return self._resolve(span, wait)


def _outside(process: RecordedProcess, ranks: Sequence[Rank], threads: bool = False) -> list[RecordedSpan]:
    """Return spans of a Python worker outside of its ranks, of its main thread or of its other `threads`."""
    spans = process.spans
    outside = spans.in_main_thread != threads
    for rank in ranks:
        if rank.process is process:
            outside &= ~rank.has
    return [*spans.where(outside), *(() if threads else python_parts.placed(process))]


def _one_at_a_time(
    spans: Sequence[RecordedSpan], taken: list[tuple[int, int]]
) -> tuple[list[RecordedSpan], list[RecordedSpan]]:
    """Separate spans of a Python worker that overlap `taken`, the intervals of busy workers. Extends `taken`."""
    tops = [span for span in spans if not span.parent]
    beside = [t for t in tops if any(t.start_ns < end_ns and start_ns < t.end_ns for start_ns, end_ns in taken)]
    taken += [(top.start_ns, top.end_ns) for top in tops if top not in beside]

    def is_beside(span: RecordedSpan) -> bool:
        return any(top.start_ns <= span.start_ns < top.end_ns or top is span for top in beside)

    return [s for s in spans if not is_beside(s)], [s for s in spans if is_beside(s)]


def _room(processes: Sequence[RecordedProcess], ranks: Sequence[Rank]) -> dict[int, int]:
    """Map the start of each put to the time at which the pipe had room for it; empty if the feed is not a pipe."""
    capacity = next((pipe.attrs["capacity_bytes"] for p in processes if (pipe := p.instant(kinds.FEED_PIPE))), None)
    if capacity is None:
        return {}
    gets = [get for rank in ranks for get in rank.named(kinds.GET)]
    return room_ns([put for process in processes for put in process.named(kinds.PUT)], gets, capacity)


def latest(ranks: Sequence[Rank], before_ns: int) -> Rank | None:
    """Return the trainer that started last before `before_ns`."""
    return max((rank for rank in ranks if rank.start_ns < before_ns), key=lambda rank: rank.start_ns, default=None)


def consumed_ns(rank: Rank, before_ns: int) -> int | None:
    """Return the time at which the trainer had consumed the feed; None if it discarded blocks."""
    if any(span.start_ns < before_ns for span in rank.named(kinds.TERMINATE_FEED)):
        return None
    spans = rank.named(kinds.GET, kinds.PUT_RESULTS)
    return max((span.end_ns for span in spans.where(spans.end_ns <= before_ns)), default=None)


def _add_tasks(
    lane: LaneBuilder,
    tasks: Sequence[tuple[Job, Task]],
    finished: dict[int, int],
    free_ns: int | None,
    end_ns: int | None,
) -> None:
    """Add the scheduling and the run of tasks from `free_ns` on, and the idle time before the driver has a job."""
    # a task without an end had ended before the next start: a slot runs one task at a time
    starts = [task.start_ns for _, task in tasks]
    for (job, task), next_ns in zip(tasks, [*starts[1:], end_ns], strict=False):
        asked_ns = max(job.start_ns, free_ns or job.start_ns)
        lane.log(kinds.WAIT_FOR_JOB, free_ns, min(asked_ns, task.start_ns), DRIVER_LOG, waits_for=(DRIVER_LANE,))
        lane.log(kinds.SCHEDULE_TASK, asked_ns, task.start_ns, DRIVER_LOG)
        begun_ns, *offered = job.stages.get(task.stage, [0])
        if offered and asked_ns <= begun_ns:  # the executor waited for its stage
            lane.log(kinds.SUBMIT_STAGE, begun_ns, offered[0], DRIVER_LOG)
            lane.log(kinds.OFFER_TASK, offered[0], task.start_ns, DRIVER_LOG)
        done_ns = finished.get(task.id)
        free_ns = done_ns or next_ns
        more: Details = {"detail": job.name, "truncated": done_ns is None, "attrs": {"task": task.id, "job": job.id}}
        lane.log(kinds.TASK, task.start_ns, free_ns, f"{DRIVER_LOG}, {EXECUTOR_LOG}", **more)
        # the driver may send the next task before it handles the result of this task
        reported_ns = min(filter(None, (task.end_ns or task.lost_ns, next_ns)), default=None)
        if done_ns is None:
            reported_ns = task.lost_ns  # the driver notices the loss of an executor after its end
            end_ns = max(end_ns or 0, reported_ns or 0) or None
        if free_ns is not None and reported_ns is not None and free_ns < reported_ns:
            lane.log(kinds.REPORT_TASK, free_ns, reported_ns, f"{EXECUTOR_LOG}, {DRIVER_LOG}", detail=job.name)
            free_ns = reported_ns
    lane.log(kinds.WAIT_FOR_JOB, free_ns, end_ns, EXECUTOR_LOG, waits_for=(DRIVER_LANE,))


def _add_parts(
    lane: LaneBuilder,
    evidence: Evidence,
    executor: Executor,
    slot: int,
    tasks: Sequence[tuple[Job, Task]],
    in_python: Sequence[tuple[int, int]],
) -> None:
    """Add the parts of a slot's tasks. `in_python`: intervals in which their Python workers need no thread of Spark."""
    container, log = executor.container, evidence.executors[executor.id]
    processes = [p for p in evidence.recorded_in(container) if not p.forked and p.process.role not in NOT_SPARKS]
    daemons = [p.process.start_ns for p in processes if p.process.start_ns]
    sources = f"{DRIVER_LOG}, {EXECUTOR_LOG}"
    for _, task in tasks:
        got, running, python = (found.get(task.id) for found in (log.got, log.running, log.python))
        if split := log.splits.get(task.id):
            lane.log(kinds.OPEN_INPUT, split.at_ns, python, EXECUTOR_LOG)
        lane.log(kinds.SEND_TASK, task.start_ns, got, sources)
        lane.log(kinds.START_TASK_THREAD, got, running, EXECUTOR_LOG)
        lane.log(kinds.DESERIALISE_TASK, running, log.deserialised.get(task.id), EXECUTOR_LOG)
        begun_ns = min((at_ns for at_ns in daemons if python is not None and at_ns > python), default=None)
        if begun_ns is not None and begun_ns < log.finished.get(task.id, begun_ns):
            lane.add(kinds.LAUNCH_PYTHON_DAEMON, python, begun_ns, f"{EXECUTOR_LOG}, /proc", resolution_ns=tick_ns())
    for kind, found in ((kinds.READ_BROADCAST, log.broadcasts), (kinds.DESERIALISE_FUNCTION, log.functions)):
        for of_task, begun_ns, ended_ns in found:
            if evidence.slot_of(executor.id, of_task) == slot:
                lane.log(kind, begun_ns, ended_ns, EXECUTOR_LOG)
    # the thread of a task reads input while the Python worker works; only a read of a block waits for that thread
    made = [call for call in rpc.calls(evidence.container_log(container)) if call.thread.startswith(TASK_THREAD)]
    own = [call for call in made if evidence.slot_of(executor.id, task_of(call.thread)) == slot]
    place_calls(lane, own, EXECUTOR_LOG, in_python)


def _add_imports(lane: LaneBuilder, process: RecordedProcess, spans: Sequence[RecordedSpan]) -> None:
    """Add the outermost imports of packages while the worker unpickles a user's function, except PySpark's own and
    those that the recorder has as spans."""
    imports = [instant for instant in process.instants if instant.name == kinds.PACKAGE_IMPORTED]
    outermost = [i for i in imports if not i.attrs["by"] and i.attrs["package"] not in ("pyspark", "py4j")]
    for unpickling in (span for span in spans if span.name == kinds.UNPICKLE_FUNCTION):
        recorded = [span for span in spans if span.parent == unpickling.id]
        for instant in outermost:
            start_ns, end_ns = instant.at_ns - instant.attrs["ns"], instant.at_ns
            if any(span.start_ns <= start_ns and end_ns <= span.end_ns for span in recorded):
                continue
            if unpickling.start_ns <= start_ns and end_ns <= unpickling.end_ns:
                package = instant.attrs["package"]
                lane.add(kinds.USER_IMPORT, start_ns, end_ns, OWN_MARK, process=process.process, detail=package)


def _add_joins(
    lane: LaneBuilder, process: RecordedProcess, spans: Iterable[RecordedSpan], ranks: Sequence[Rank]
) -> None:
    """Add the wait of a feed task for its trainer, which consumes the last blocks; published TensorFlowOnSpark polls
    once a second."""
    exhausted = [instant for instant in process.instants if instant.name == kinds.FEED_EXHAUSTED]
    for feed in (span for span in spans if span.name == kinds.FEED_TASK):
        ends = [instant for instant in exhausted if feed.start_ns <= instant.at_ns <= feed.end_ns]
        if ends:
            period_ns = ends[-1].attrs["join_poll_ns"]
            more: Details = {"truncated": feed.truncated}
            if period_ns:
                more |= kinds.FEED_JOIN_POLL.fields(period_ns)
            if rank := latest(ranks, feed.end_ns):
                more |= {"waits_for": (rank.lane,), "released_ns": consumed_ns(rank, feed.end_ns)}
            lane.add(kinds.JOIN_QUEUE, ends[-1].at_ns, feed.end_ns, OWN_MARK, process=process.process, **more)
