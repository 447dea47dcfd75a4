"""Finds the dated events of start-up and teardown, along the container whose executor was ready last.

Each event has its source and resolution; an event without a source is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlobd import spans as kinds
from dlobd.evidence import yarn
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.schema import Event
from dlobd.spans import InstantKind
from dlobd.timeline.application import NM_LOG, REST_RESOLUTION_NS, RM_LOG, RM_REST
from dlobd.timeline.builder import OWN_MARK
from dlobd.timeline.driver import CLIENT, JVM_LOG
from dlobd.timeline.executor import DRIVER_LOG, lane_of
from dlobd.timeline.ranks import Rank, last_executor
from dlobd.tracing.clock import tick_ns

Events = list[Event]


def events(evidence: Evidence, ranks: Sequence[Rank]) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return the events of start-up and of teardown, each sorted by time."""
    last = last_executor(evidence, ranks)
    rank = next((rank for rank in ranks if rank.executor == last), None)
    chief = next((rank for rank in ranks if rank.role == "chief"), None)
    startup = [*_submission(evidence), *_executor(evidence, last), *_trainer(evidence, last, rank)]
    teardown = _teardown(evidence, chief or rank)
    key = lambda event: event.at_ns  # noqa: E731
    return tuple(sorted(startup, key=key)), tuple(sorted(teardown, key=key))


def _add(
    events: Events, event: InstantKind, at_ns: int | None, source: str, resolution_ns: int = 1, lane: str = ""
) -> None:
    if at_ns is not None:
        events.append(Event(event, at_ns, source, resolution_ns=resolution_ns, lane=lane))


def _submission(evidence: Evidence) -> Events:
    found: Events = []
    window, log = evidence.window, evidence.submitter.log
    app = evidence.yarn.application.at
    am = evidence.yarn.containers.get(evidence.attempts.am, yarn.Marks()).at
    python = evidence.driver_process
    if evidence.topology.by_hand:
        _add(found, kinds.APPLICATION_SUBMITTED, window["exec_ns"], RM_REST, REST_RESOLUTION_NS)
    else:
        _add(found, kinds.SPARK_SUBMIT_EXEC, window["exec_ns"], CLIENT)
    _add(found, kinds.SUBMIT_JVM_UP, evidence.submitter.life.start_ns if evidence.submitter.life else None, JVM_LOG)
    if python:
        _add(found, kinds.DRIVER_PYTHON_UP, python.process.start_ns, "/proc", tick_ns())
        start = python.instant(kinds.SPARK_CONTEXT_START)
        _add(found, kinds.SPARK_CONTEXT_START, start.at_ns if start else None, OWN_MARK)
    submitting = log.points.get("submitting")
    _add(found, kinds.SUBMITTED, submitting.at_ns if submitting else None, DRIVER_LOG, RESOLUTION_NS)
    _add(found, kinds.APPLICATION_ACCEPTED, app.get("ACCEPTED"), RM_LOG, RESOLUTION_NS)
    _add(found, kinds.AM_ALLOCATED, am.get("ALLOCATED"), RM_LOG, RESOLUTION_NS)
    _add(found, kinds.AM_START_REQUESTED, am.get("START_REQUEST"), NM_LOG, RESOLUTION_NS)
    _add(found, kinds.AM_LOCALISED, am.get("SCHEDULED"), NM_LOG, RESOLUTION_NS)
    life = evidence.container_jvm(evidence.attempts.am) if evidence.attempts.am else None
    _add(found, kinds.AM_PROCESS_UP, life.start_ns if life else None, "AM JVM log")
    _add(
        found, kinds.AM_REGISTERED, evidence.yarn.attempt(evidence.attempts.am).at.get("RUNNING"), RM_LOG, RESOLUTION_NS
    )
    return found


def _executor(evidence: Evidence, executor: str | None) -> Events:
    found: Events = []
    container = evidence.executor_containers.get(executor or "")
    if executor is None or container is None:
        return found
    lane = lane_of(executor)
    marks = evidence.yarn.containers.get(container, yarn.Marks()).at
    life = evidence.container_jvm(container)
    _add(found, kinds.EXECUTOR_ALLOCATED, marks.get("ALLOCATED"), RM_LOG, RESOLUTION_NS, lane)
    _add(found, kinds.EXECUTOR_START_REQUESTED, marks.get("START_REQUEST"), NM_LOG, RESOLUTION_NS, lane)
    _add(found, kinds.EXECUTOR_LOCALISED, marks.get("SCHEDULED"), NM_LOG, RESOLUTION_NS, lane)
    _add(found, kinds.EXECUTOR_PROCESS_UP, life.start_ns if life else None, "executor JVM log", 1, lane)
    _add(
        found,
        kinds.EXECUTOR_REGISTERED,
        evidence.driver.log.registered[executor].at_ns,
        DRIVER_LOG,
        RESOLUTION_NS,
        lane,
    )
    return found


def _trainer(evidence: Evidence, executor: str | None, rank: Rank | None) -> Events:
    found: Events = []
    container = evidence.executor_containers.get(executor or "")
    if executor is None or container is None:
        return found
    lane = lane_of(executor)
    workers = [p.opened_ns for p in evidence.recorded_in(container) if p.forked and p.process.role == "python-worker"]
    _add(found, kinds.PYTHON_WORKER_UP, min(workers, default=None), OWN_MARK, 1, lane)
    if rank:
        reserved = [s.end_ns for p in evidence.recorded_in(container) for s in p.named(kinds.AWAIT_RESERVATIONS)]
        _add(found, kinds.LAUNCHER_RENDEZVOUS_DONE, min(reserved, default=None), OWN_MARK, 1, lane)
        if rank.whole:
            _add(found, kinds.TRAINER_FORKED, rank.start_ns, OWN_MARK, 1, lane)
        _add(found, kinds.USER_MAIN_CALLED, rank.main.start_ns if rank.main else None, OWN_MARK, 1, lane)
        imported = [s.end_ns for s in rank.named(kinds.IMPORT_TENSORFLOW) if rank.main and not s.truncated]
        _add(found, kinds.TENSORFLOW_IMPORTED, min(imported, default=None), OWN_MARK, 1, lane)
        first = next(iter(rank.named(kinds.GET)), None) if rank.main else None
        _add(found, kinds.FIRST_BATCH, first.end_ns if first else None, OWN_MARK, 1, lane)
        for event in (kinds.TENSORFLOW_IMPORTED, kinds.RANKS_JOINED, kinds.FIRST_BATCH, kinds.FIRST_STEP_DONE):
            instant = rank.process.instant(event)
            _add(found, event, instant.at_ns if instant else None, OWN_MARK, 1, lane)
    return found


def _teardown(evidence: Evidence, chief: Rank | None) -> Events:
    found: Events = []
    if chief:
        for event in (kinds.LAST_STEP_DONE, kinds.SAVED, kinds.EVALUATED):
            instant = chief.process.instant(event)
            _add(found, event, instant.at_ns if instant else None, OWN_MARK)
        if chief.main and not chief.main.truncated:
            _add(found, kinds.USER_MAIN_ENDED, chief.main.end_ns, OWN_MARK)
    if python := evidence.driver_process:
        for event in (kinds.LAUNCHER_SHUT_DOWN, kinds.SPARK_CONTEXT_STOPPED):
            instant = python.instant(event)
            _add(found, event, instant.at_ns if instant else None, OWN_MARK)
    _add(found, kinds.APPLICATION_FINISHED, evidence.yarn.application.at.get("FINISHED"), RM_LOG, RESOLUTION_NS)
    _add(found, kinds.DRIVER_JVM_EXIT, evidence.driver.life.exit_ns if evidence.driver.life else None, JVM_LOG)
    if not evidence.topology.by_hand:
        _add(found, kinds.SPARK_SUBMIT_EXIT, evidence.window["exit_ns"], CLIENT)
    return found
