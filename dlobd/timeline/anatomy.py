"""Finds the events of start-up and teardown with their times, for the executor that was ready last.

Each event has its source and resolution; an event without a source is omitted, never guessed.
"""

from collections.abc import Iterable, Iterator, Sequence

from dlobd import spans as kinds
from dlobd.evidence import yarn
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import RESOLUTION_NS, LogLine
from dlobd.evidence.recorder import Instant, RecordedProcess
from dlobd.schema import Event
from dlobd.spans import InstantKind
from dlobd.timeline.application import NM_LOG, REST_RESOLUTION_NS, RM_LOG, RM_REST
from dlobd.timeline.builder import OWN_MARK
from dlobd.timeline.driver import CLIENT, JVM_LOG
from dlobd.timeline.executor import DRIVER_LOG, lane_of
from dlobd.timeline.ranks import Rank, last_executor
from dlobd.tracing.clock import tick_ns

RESOLUTIONS_NS = {RM_LOG: RESOLUTION_NS, NM_LOG: RESOLUTION_NS, DRIVER_LOG: RESOLUTION_NS, RM_REST: REST_RESOLUTION_NS}
"""Resolution of each source; 1 ns for all other sources except /proc."""

TRAINING_BEGINS = (kinds.TENSORFLOW_IMPORTED, kinds.RANKS_JOINED, kinds.FIRST_BATCH, kinds.FIRST_STEP_DONE)
TRAINING_ENDS = (kinds.LAST_STEP_DONE, kinds.SAVED, kinds.EVALUATED)

Row = tuple[InstantKind, LogLine | Instant | int | None, str]
"""An event, its time or its record, and the source."""


def events(evidence: Evidence, ranks: Sequence[Rank]) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return the events of start-up, of the first application, and of teardown, of the last, each sorted by time."""
    first, final = evidence.applications[0], evidence.applications[-1]
    last = last_executor(first, ranks)
    rank = next((rank for rank in ranks if rank.executor == last), None)
    chief = next((rank for rank in ranks if rank.role == "chief"), None)
    lane = lane_of(last) if last else ""
    startup = [*_dated(_submission(first)), *_dated(_executor(first, last, rank), lane)]
    return _sorted(startup), _sorted(_dated(_teardown(final, chief or rank)))


def plain_events(evidence: Evidence, ranks: Sequence[Rank]) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
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


def _submission(evidence: Evidence) -> Iterator[Row]:
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


def _executor(evidence: Evidence, executor: str | None, rank: Rank | None) -> Iterator[Row]:
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


def _teardown(evidence: Evidence, chief: Rank | None) -> Iterator[Row]:
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
