"""Builds the lane of one executor: start of its container, JVM, tasks, and spans of its Python workers."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import MOST, NONE, Flags, Ints
from dlobd.evidence import rpc, slots
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.feed import passed_ns, without_reads
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import Instant, RecordedProcess
from dlobd.evidence.spark import Job, Task, task_of
from dlobd.evidence.topology import DRIVER_LANE
from dlobd.evidence.yarn import Marks, attempt_of
from dlobd.schema import Process
from dlobd.spans import Details, SpanKind
from dlobd.timeline import application, jvm
from dlobd.timeline.application import RM_LOG, add_container_start, add_process_start, lost_ns, nm_heartbeat
from dlobd.timeline.builder import OWN_MARK, Handover, LaneBuilder, Part, Resolve, place_calls
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


def build(evidence: Evidence, host: str, executor: Executor, resolve: Resolve) -> list[Part]:
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
    ended = ready_ns or end_ns, DRIVER_LOG, ready_ns is None
    add_process_start(lane, application.EXECUTOR_START, begun, ended)
    jvm.add_boot(lane, life, evidence.log4j(container), log.first, EXECUTOR_JVM_LOG, EXECUTOR_LOG)
    jvm.add_phases(lane, evidence.container_log(container), jvm.EXECUTOR, EXECUTOR_LOG, ready_ns)
    jvm.add_pauses(lane, life, jvm_ns, ready_ns, EXECUTOR_JVM_LOG)
    of_slots = {slots.FIRST: lane}
    for slot in sorted({*evidence.slots.get(executor.id, {}).values()} - {slots.FIRST}):
        of_slots[slot] = LaneBuilder(lane_of(executor.id, slot), lane.process)
    python = _Python(evidence, executor, of_slots, resolve)
    busy = python.busy()
    for slot, own in of_slots.items():
        tasks = [pair for pair in executor.tasks if evidence.slot_of(executor.id, pair[1].id) == slot]
        _add_tasks(own, tasks, log.finished, ready_ns, end_ns)
        _add_parts(own, evidence, executor, slot, tasks, busy[slot])
    for rank, start_ns, until_ns in executor.in_task:
        own = python.lane_at(rank.process, start_ns)
        own.add(kinds.TRAINER_IN_TASK, start_ns, until_ns, OWN_MARK, waits_for=(rank.lane,))
    beside = python.add()
    add_agents(python.lane_at, evidence.recorded_in(container), executor.ranks)
    return [*(part for own in of_slots.values() for part in own.parts), *beside]


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
    early = rpc.before(calls, requested)
    if accepted_ns is not None:
        # the ResourceManager may log the new state after it answered
        answers = [call.end_ns for call in early if call.method == "registerApplicationMaster"]
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
        lines = evidence.container_log(evidence.attempts.am_of(container))
        until = takewhile(lambda line: line.at_ns <= requested, lines)  # thousands of containers may follow
        jvm.add_phases(lane, until, jvm.REQUEST, AM_LOG, requested)
        place_calls(lane, [c for c in early if c.thread == "main" and accepted_ns < c.start_ns], AM_LOG)
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

    def _slots(self, process: RecordedProcess, at_ns: Ints) -> Ints:
        if len(self._lanes) == 1:
            return np.full(len(at_ns), slots.FIRST)
        task, place = np.unique(self._served[id(process)].at(at_ns), return_inverse=True)
        tasks = (None if one == NONE else one for one in task.tolist())
        return np.array([self._evidence.slot_of(self._executor.id, one) for one in tasks])[place]

    def lane_at(self, process: RecordedProcess, at_ns: int) -> LaneBuilder:
        """Return the lane of the slot whose task a process served at a time."""
        return self._lanes[int(self._slots(process, np.array([at_ns]))[0])]

    def busy(self) -> dict[int, list[tuple[int, int]]]:
        """Return, for each slot, the sorted intervals in which its feed tasks read no block from Spark."""
        found: dict[int, list[tuple[int, int]]] = {slot: [] for slot in self._lanes}
        for process in self._here:
            intervals = without_reads(process.spans)
            of_slots = self._slots(process, intervals[:, 0])
            for slot, own in found.items():
                own += map(tuple, intervals[of_slots == slot].tolist())
        return {slot: sorted(own) for slot, own in found.items()}

    def add(self) -> list[Part]:
        """Add the daemon and the workers. Returns the spans of concurrent workers and of other threads."""
        found: list[Part] = []
        taken: dict[int, list[tuple[int, int]]] = {slot: [] for slot in self._lanes}
        # of the workers of one task, the others wait for the worker in the barrier
        for process in sorted(self._here, key=lambda one: not one.named(kinds.BARRIER)):
            if process.process.role not in NOT_SPARKS:
                found += self._add(process, taken)
        return found

    def _add(self, process: RecordedProcess, taken: dict[int, list[tuple[int, int]]]) -> list[Part]:
        found: list[Part] = []
        who, opened_ns, spans = process.process, process.opened_ns, process.spans
        starters = [] if process.forked else self._starters(who)
        for lane in starters:
            start = who.start_ns, opened_ns, f"/proc, {OWN_MARK}"
            lane.add(kinds.START_PYTHON_DAEMON, *start, resolution_ns=tick_ns(), process=who)
        outside = np.ones(len(spans), np.bool_)
        for rank in self._executor.ranks:
            if rank.process is process:
                outside &= ~rank.has
        main, of_slots = outside & spans.in_main_thread, self._slots(process, spans.start_ns)
        # a user's script may run several workers in one task; dlobd's own job never does
        user_worker = self._evidence.topology.user_script and process.forked
        parts = RecordedSpans.of(placed_parts(process))
        for slot, lane in self._lanes.items():
            here = main & (of_slots == slot)
            if not process.forked and len(self._lanes) > 1:  # all tasks that need a daemon wait for it
                here = main if lane in starters else np.zeros_like(main)
            aside = _beside(spans.where(here), taken[slot]) if user_worker else NO_INTERVALS
            beside = here & _begun_in(spans.start_ns, aside)
            second = LaneBuilder(f"{lane.lane}/python-{who.pid}", who)
            first = spans.start_ns[:1].tolist() if user_worker and here[:1].any() else []
            if first:
                # imports of PySpark until the first function is unpickled, inside the task that waits for them
                of_first = second if beside[0] else lane
                of_first.add(kinds.PYTHON_WORKER_STARTS, opened_ns, first[0], OWN_MARK, process=who)
            pieces = parts.where(self._slots(process, parts.start_ns) == slot)
            apart = _begun_in(pieces.start_ns, aside)
            for to, some, more in ((lane, here & ~beside, pieces.where(~apart)), (second, beside, pieces.where(apart))):
                self._add_recorded(to, process, some)
                to.add_recorded(process, more)
                _add_imports(to, process, spans.where(some))
            _add_joins(lane, process, spans.where(here), self._executor.ranks)
            found += second.parts
        lane = self._lanes[slots.FIRST]
        for thread, some in spans.other_threads():
            beside_lane = LaneBuilder(f"{lane.lane}/{thread}", who)
            self._add_recorded(beside_lane, process, some & outside)
            found += beside_lane.parts
        return found

    def _starters(self, daemon: Process) -> list[LaneBuilder]:
        """Return the lanes whose tasks wait for the start of a daemon; the first lane if it is unknown."""
        waiting = [
            lane
            for lane in self._lanes.values()
            if any(s.kind is kinds.LAUNCH_PYTHON_DAEMON and s.end_ns == daemon.start_ns for s in lane.spans)
        ]
        return waiting or [self._lanes[slots.FIRST]]

    def _add_recorded(self, lane: LaneBuilder, process: RecordedProcess, some: Flags) -> None:
        # from then on the pipe has room: the rest is the put's own time
        room_since_ns, error_ns = np.full(len(process.spans), NONE), np.zeros(len(process.spans), np.int64)
        puts = process.spans.is_named(kinds.PUT)
        room_since_ns[puts], error_ns[puts] = self._room[id(process)]
        handover = Handover(kinds.WRITE_BLOCK, room_since_ns[some], error_ns[some])
        lane.add_recorded(process, process.spans.where(some), self._resolve_own, handover=handover)

    def _resolve_own(self, span: RecordedSpan, wait: Details) -> Details:
        if kinds.WAIT_TRAINER in wait.get("waits_for", ()):
            rank = latest(self._executor.ranks, span.end_ns)
            if rank and span.name == kinds.SLEEP and not rank.finished[0]:
                wait["released_ns"] = min(max(rank.finished[1], span.start_ns), span.end_ns)
            return {**wait, "waits_for": (rank.lane,) if rank else ()}
        return self._resolve(span, wait)


NO_INTERVALS = np.zeros((0, 2), np.int64)


def _beside(spans: RecordedSpans, taken: list[tuple[int, int]]) -> Ints:
    """Return the outermost spans of a Python worker that overlap `taken`, the intervals of busy workers: intervals of
    shape (n, 2). Extends `taken` by the others."""
    tops = spans.where(spans.parent == 0)
    intervals = np.stack([tops.start_ns, tops.end_ns], axis=1)
    busy = np.array(sorted(taken), np.int64).reshape(-1, 2)
    latest_ns = np.append(-MOST, np.maximum.accumulate(busy[:, 1]))
    overlap = latest_ns[np.searchsorted(busy[:, 0], tops.end_ns)] > tops.start_ns
    taken += map(tuple, intervals[~overlap].tolist())
    return intervals[overlap]


def _begun_in(start_ns: Ints, intervals: Ints) -> Flags:
    """Return True for each start in one of the intervals, which belong to one thread and so do not overlap."""
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    place = np.searchsorted(intervals[:, 0], start_ns, "right")
    # an empty interval has its own start
    ends_ns = np.append(-MOST, np.maximum(intervals[:, 1], intervals[:, 0] + 1))
    flags: Flags = start_ns < ends_ns[place]
    return flags


def _room(processes: Sequence[RecordedProcess], ranks: Sequence[Rank]) -> dict[int, tuple[Ints, Ints]]:
    """Return for each process the times at which the pipe had room for its puts, with their errors; NONE if the feed is
    not a pipe."""
    puts = [process.named(kinds.PUT) for process in processes]
    capacity = next((pipe.attrs["capacity_bytes"] for p in processes if (pipe := p.instant(kinds.FEED_PIPE))), None)
    gets = [rank.named(kinds.GET) for rank in ranks]
    if capacity is None:
        return {id(process): (np.full(len(put), NONE),) * 2 for process, put in zip(processes, puts, strict=True)}
    ends = np.cumsum([len(put) for put in puts])[:-1]
    parts = zip(processes, *(np.split(column, ends) for column in passed_ns(puts, gets, capacity)), strict=True)
    return {id(process): (at_ns, error_ns) for process, at_ns, error_ns in parts}


def latest(ranks: Sequence[Rank], before_ns: int) -> Rank | None:
    """Return the trainer that started last before `before_ns`."""
    return max((rank for rank in ranks if rank.start_ns < before_ns), key=lambda rank: rank.start_ns, default=None)


def consumed_ns(rank: Rank, before_ns: int) -> int | None:
    """Return the time at which the trainer had consumed the feed; None if it discarded blocks."""
    if any(span.start_ns < before_ns for span in rank.named(kinds.TERMINATE_FEED)):
        return None
    spans = rank.named(kinds.GET, kinds.PUT_RESULTS)
    last = spans.where(spans.end_ns <= before_ns).last_ended
    return last.end_ns if last else None


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


def _add_imports(lane: LaneBuilder, process: RecordedProcess, spans: RecordedSpans) -> None:
    """Add the outermost imports of packages while the worker unpickles a user's function, except PySpark's own and
    those that the recorder has as spans."""
    imports = [instant for instant in process.instants if instant.name == kinds.PACKAGE_IMPORTED]
    outermost = [i for i in imports if not i.attrs["by"] and i.attrs["package"] not in ("pyspark", "py4j")]
    for unpickling in spans.named(kinds.UNPICKLE_FUNCTION) if outermost else ():
        recorded = spans.where(spans.parent == unpickling.id)
        for instant in outermost:
            start_ns, end_ns = instant.at_ns - instant.attrs["ns"], instant.at_ns
            if ((recorded.start_ns <= start_ns) & (end_ns <= recorded.end_ns)).any():
                continue
            if unpickling.start_ns <= start_ns and end_ns <= unpickling.end_ns:
                package = instant.attrs["package"]
                lane.add(kinds.USER_IMPORT, start_ns, end_ns, OWN_MARK, process=process.process, detail=package)


def _add_joins(lane: LaneBuilder, process: RecordedProcess, spans: RecordedSpans, ranks: Sequence[Rank]) -> None:
    """Add the wait of a feed task for its trainer, which consumes the last blocks; published TensorFlowOnSpark polls
    once a second."""
    exhausted = [instant for instant in process.instants if instant.name == kinds.FEED_EXHAUSTED]
    for feed in spans.named(kinds.FEED_TASK) if exhausted else ():
        last = exhausted[bisect_right(exhausted, feed.end_ns, key=lambda instant: instant.at_ns) - 1]
        if feed.start_ns <= last.at_ns <= feed.end_ns:
            period_ns = last.attrs["join_poll_ns"]
            more: Details = {"truncated": feed.truncated}
            if period_ns:
                more |= kinds.FEED_JOIN_POLL.fields(period_ns)
            if rank := latest(ranks, feed.end_ns):
                more |= {"waits_for": (rank.lane,), "released_ns": consumed_ns(rank, feed.end_ns)}
            lane.add(kinds.JOIN_QUEUE, last.at_ns, feed.end_ns, OWN_MARK, process=process.process, **more)


def placed_parts(process: RecordedProcess) -> list[RecordedSpan]:
    """Return spans of the parts of a task in a Python worker, with IDs of their own.

    A worker records sums of slices (`dlobd.job.user.python_worker`). In its slice, each sum becomes one span: first the
    reads, last the writes; the rest between them is the user's function. So the time of each part is exact in whole
    slices; inside a slice, its place is not known. A slice with other spans, such as the user's own, is not divided.
    """
    slices = [instant for instant in process.instants if instant.name == kinds.PYTHON_SLICE]
    if not slices:
        return []
    ids = count(1 + max((span.id for span in process.spans), default=0))
    main = [span for span in process.spans if not span.thread]
    found = []
    for task in (span for span in main if span.kind is kinds.USER_CODE and not span.parent):
        inside = [span for span in main if span is not task and task.start_ns <= span.start_ns < task.end_ns]
        for piece in (one for one in slices if task.start_ns < one.at_ns <= task.end_ns):
            begin_ns = piece.at_ns - piece.attrs["ns"]
            divided = any(span.start_ns < piece.at_ns and begin_ns < span.end_ns for span in inside)
            if begin_ns >= task.start_ns and not divided:
                for kind, start_ns, end_ns in _parts_of(piece):
                    names = next(ids), task.id, kind.layer, str(kind)
                    found.append(RecordedSpan(*names, start_ns, end_ns, False, {}, {}, ""))
    return found


def _parts_of(piece: Instant) -> Iterator[tuple[SpanKind, int, int]]:
    """Yield kind, start and end of each part of a slice, except the user's function and parts of no time."""
    sums, end_ns = piece.attrs, piece.at_ns
    start_ns = end_ns - sums["ns"]
    loop_ns = 0
    if "function_ns" in sums:  # each call is timed
        loop_ns = sums["ns"] - sums["read_ns"] - sums["serialise_ns"] - sums["function_ns"] - sums["write_ns"]
    before = (kinds.READ_FROM_JVM, sums["read_ns"]), (kinds.SERIALISE_ROWS, sums["serialise_ns"])
    for kind, ns in (*before, (kinds.PYSPARK_LOOP, loop_ns)):
        if ns > 0:
            yield kind, start_ns, start_ns + ns
            start_ns += ns
    if sums["write_ns"] > 0:
        yield kinds.WRITE_TO_JVM, end_ns - sums["write_ns"], end_ns


def add_agents(
    lane_at: Callable[[RecordedProcess, int], LaneBuilder], here: Sequence[RecordedProcess], ranks: Sequence[Rank]
) -> None:
    """Add torchrun's agents to the lane that waits for them: of an executor, or of the driver in local mode.

    torchrun starts -> import torch -> rendezvous -> start ranks -> sleeps that wait for a rank -> exit barrier

    lane_at: returns the lane of a process that starts torchrun at a time.
    """
    for agent in here:
        called = agent.instant(kinds.TORCHRUN_CALLED)
        starter = next((one for one in here if called and one.process.pid == called.attrs["pid"]), None)
        if starter is None:
            continue
        calls = [span for span in starter.named(kinds.TORCHRUN) if span.start_ns < agent.opened_ns]
        if not calls:
            continue  # the starter's record is incomplete
        command = calls[-1]
        who, tick = agent.process, tick_ns()
        lane = lane_at(starter, command.start_ns)
        bounds = command.start_ns, who.start_ns, f"{OWN_MARK}, /proc"
        lane.add(kinds.TORCHRUN_WRAPPER_STARTS, *bounds, resolution_ns=tick, process=who)
        bounds = who.start_ns or command.start_ns, agent.opened_ns, f"/proc, {OWN_MARK}"
        lane.add(kinds.TORCHRUN_STARTS, *bounds, resolution_ns=tick, process=who)
        lane.add_recorded(agent, resolve=partial(_resolve_agent, [r for r in ranks if r.process.parent == who.pid]))
        lane.add(kinds.TORCHRUN_EXITS, agent.last_ns, command.end_ns, OWN_MARK)


def _resolve_agent(own: Sequence[Rank], span: RecordedSpan, wait: Details) -> Details:
    """Let a sleep of the agent wait for the last of its training processes."""
    if span.kind is not kinds.SLEEP:
        return wait
    rank = max((r for r in own if r.start_ns < span.end_ns), key=lambda rank: rank.finished, default=None)
    return {**wait, **(rank.releases(span) if rank else {"waits_for": ()})}
