"""Builds the lane of the YARN application: from the submit RPC to the end of the application."""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.rpc import Call, before
from dlobd.evidence.topology import DRIVER_LANE
from dlobd.evidence.yarn import Marks, attempt_of
from dlobd.schema import Process
from dlobd.spans import Details, SpanKind
from dlobd.timeline import jvm
from dlobd.timeline.builder import LaneBuilder, Part, place_calls, poll_ns

RM_LOG = "RM log"
NM_LOG = "NM log"
RM_REST = "RM REST"
REST_RESOLUTION_NS = 1_000_000
"""Resolution of times in REST records."""


def nm_heartbeat(evidence: Evidence) -> Details:
    """Return the heartbeat of a NodeManager as fields of a span, with the period from the run's settings if known."""
    settings = evidence.event_log.hadoop_settings
    set_ms = settings.get("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "")
    if set_ms.isdigit():
        return kinds.NM_HEARTBEAT_SET.fields(int(set_ms) * 1_000_000)
    return kinds.NM_HEARTBEAT.fields()


def build(evidence: Evidence, host: str) -> list[Part]:
    """Return the spans of the application; none if it was never submitted."""
    lane = LaneBuilder(evidence.application_lane, Process(host, "application-master", 0, 0))
    app = evidence.yarn.application.at
    lane.log(kinds.ACCEPT_APPLICATION, app.get("SUBMITTED"), app.get("ACCEPTED"), RM_LOG)
    asked_ns, source = (app["ACCEPTED"], RM_LOG) if "ACCEPTED" in app else (app.get("SUBMITTED"), RM_REST)
    for container in evidence.attempts.ams[:-1]:
        asked_ns, source = _add_lost_attempt(lane, evidence, container, asked_ns, source), RM_LOG
    last = evidence.attempts.am
    from_ns = _add_start(lane, evidence, last, asked_ns, source)
    am = evidence.application_master
    unregister = am.unregistering.at_ns if am.unregistering else None
    finished = app.get("FINISHED")
    python = evidence.driver_process
    until_ns = unregister or finished
    if evidence.topology.driver_in_container:
        # the ApplicationMaster is the driver: its start-up ends when its Python starts
        kind = kinds.AM_RUNS_DRIVER
        until_ns = (max((span.end_ns for span in python.spans), default=None) if python else None) or until_ns
    else:
        kind = kinds.AM_SERVES_DRIVER  # an idle ApplicationMaster only waits for its driver
    lane.add(kind, from_ns, until_ns, f"AM log, {RM_LOG}", waits_for=(DRIVER_LANE,))
    _add_jvm(lane, evidence, last, from_ns)
    lane.log(kinds.AM_STOPS, until_ns, unregister or finished, "AM log")
    lane.log(kinds.UNREGISTER_APPLICATION, unregister, finished, "AM log, " + RM_LOG)
    return lane.parts


def _add_start(
    lane: LaneBuilder, evidence: Evidence, container: str, asked_ns: int | None, asked_source: str
) -> int | None:
    """Add the start of an ApplicationMaster. Returns the time from which it serves or runs the driver."""
    marks = evidence.yarn.containers.get(container, Marks()).at
    am = evidence.am_log_of(container)
    life = evidence.container_jvm(container) if container else None
    begun = (life.start_ns if life else am.first.at_ns if am.first else None, "AM log")
    add_container_start(lane, marks, "AM", asked_ns, asked_source, begun, nm_heartbeat(evidence))
    running_ns = evidence.yarn.attempt(container).at.get("RUNNING")
    if evidence.topology.driver_in_container:
        python = evidence.driver_process
        from_ns = python.process.start_ns if python else None
        registering_ns, source = None, "/proc"
    else:
        # it requests containers immediately after it registers
        from_ns = running_ns or (am.requested.at_ns if am.requested else None)
        registering_ns, source = am.registering.at_ns if am.registering else None, "AM log"
    started = (marks.get("RUNNING"), life.start_ns if life else None, am.first.at_ns if am.first else None)
    ended = (registering_ns or from_ns, source, from_ns is None)
    add_process_start(lane, AM_START, started, ended)
    lane.log(kinds.REGISTER_APPLICATION, registering_ns, running_ns, f"AM log, {RM_LOG}")
    return from_ns


def lost_ns(evidence: Evidence, container: str) -> int | None:
    """Return the last known time of the ApplicationMaster of a lost attempt."""
    life, marks = evidence.container_jvm(container), evidence.yarn.containers.get(container, Marks()).at
    last = evidence.container_log(container)[-1:]
    ends = (life.exit_ns if life else None, marks.get("EXITED"), last[0].at_ns if last else None)
    return next(filter(None, ends), None)


def _add_lost_attempt(
    lane: LaneBuilder, evidence: Evidence, container: str, asked_ns: int | None, asked_source: str
) -> int | None:
    """Add an attempt whose ApplicationMaster was lost, and return the start of the next attempt."""
    gone_ns, number = lost_ns(evidence, container), attempt_of(container)
    again_ns = evidence.yarn.attempts.get(number + 1, Marks()).at.get("SUBMITTED") or gone_ns
    if evidence.topology.driver_in_container:
        lane.log(kinds.LOST_ATTEMPT, asked_ns, gone_ns, f"{RM_LOG}, {NM_LOG}")
    else:
        from_ns = _add_start(lane, evidence, container, asked_ns, asked_source)
        _add_jvm(lane, evidence, container, from_ns)
        lane.add(kinds.AM_SERVES_DRIVER, from_ns, gone_ns, f"AM log, {NM_LOG}", waits_for=(DRIVER_LANE,))
    lane.log(kinds.NOTICE_LOST_ATTEMPT, gone_ns, again_ns, f"{NM_LOG}, {RM_LOG}")
    return again_ns


def lost_attempts(evidence: Evidence) -> Iterator[str]:
    """Yield a warning for each attempt of the application that was repeated."""
    for container in evidence.attempts.ams[:-1]:
        gone_ns, number = lost_ns(evidence, container), attempt_of(container)
        begun_ns = evidence.yarn.containers.get(container, Marks()).at.get("ALLOCATED")
        how = f" after {(gone_ns - begun_ns) / 1e9:.3f} s" if gone_ns and begun_ns else ""
        what = "the driver and all its work were" if evidence.topology.driver_in_container else "its executors were"
        yield f"lost work: attempt {number} of the application lost its ApplicationMaster{how}; {what} started again"


def _add_jvm(lane: LaneBuilder, evidence: Evidence, container: str, registered_ns: int | None) -> None:
    """Add phases of the ApplicationMaster's JVM. In cluster mode the driver's lane continues after them."""
    if not container:
        return
    lines = evidence.container_log(container)
    life = evidence.container_jvm(container)
    first = evidence.am_log_of(container).first
    jvm.add_boot(lane, life, evidence.log4j(container), first, "AM JVM log", "AM log")
    jvm.add_phases(lane, lines, jvm.APPLICATION_MASTER, "AM log", registered_ns)
    if registered_ns:
        main = [
            call for call in evidence.am_calls_of(container) if call.thread == "main" and call.start_ns < registered_ns
        ]
        place_calls(lane, main, "AM log", [(registered_ns, sys.maxsize)])
    jvm.add_pauses(lane, life, life.start_ns if life else None, registered_ns, "AM JVM log")


def add_container_start(
    lane: LaneBuilder,
    marks: dict[str, int],
    what: str,
    asked_ns: int | None,
    asked_source: str,
    begun: tuple[int | None, str],
    allocated_by: Details,
    calls: Sequence[Call] = (),
    start_call: Call | None = None,
) -> None:
    """Add a container from its request to the start of its process.

    begun: time and source of that start.
    calls, start_call: calls of the ApplicationMaster, and the call with which it started the container.
    """
    begun_ns, begun_source = begun
    if "ALLOCATED" not in marks:
        launched = "START_REQUEST" in marks
        until = (marks["START_REQUEST"], NM_LOG) if launched else begun
        kind = kinds.ALLOCATE_AND_LAUNCH_CONTAINER if launched else kinds.ALLOCATE_TO_START_CONTAINER
        resolution_ns = REST_RESOLUTION_NS if asked_source == RM_REST else RESOLUTION_NS
        source = f"{asked_source}, {until[1]}"
        lane.add(kind, asked_ns, until[0], source, detail=what, resolution_ns=resolution_ns)
    elif "START_REQUEST" not in marks:
        handed_ns = marks.get("ACQUIRED") or marks["ALLOCATED"]
        source = f"{RM_LOG}, {begun_source}"
        lane.log(kinds.LOCALISE_AND_START_CONTAINER, handed_ns, begun_ns, source, detail=what)
    # the CapacityScheduler allocates at a node's heartbeat
    more: Details = {"detail": what, **allocated_by}
    lane.log(kinds.ALLOCATE_CONTAINER, asked_ns, marks.get("ALLOCATED"), f"{asked_source}, {RM_LOG}", **more)
    _add_hand_out(lane, marks, what, calls)
    taken_ns = marks.get("ACQUIRED")
    # the ResourceManager launches the AM's container; the AM launches executors' containers
    launch = kinds.LAUNCH_AM_CONTAINER if what == "AM" else kinds.AM_LAUNCHES_CONTAINER
    lane.log(launch, taken_ns, marks.get("START_REQUEST"), f"{RM_LOG}, {NM_LOG}")
    if start_call:
        source = f"AM log, {NM_LOG}"
        lane.log(kinds.CALL_NODE_MANAGER, start_call.start_ns, marks.get("START_REQUEST"), source, detail=what)
    for kind, opens, closes in (
        (kinds.PREPARE_CONTAINER, "START_REQUEST", "LOCALIZING"),
        (kinds.LOCALISE_CONTAINER, "LOCALIZING", "SCHEDULED"),
        (kinds.START_CONTAINER, "SCHEDULED", "RUNNING"),
    ):
        lane.log(kind, marks.get(opens), marks.get(closes), NM_LOG, detail=what)


def _add_hand_out(lane: LaneBuilder, marks: dict[str, int], what: str, calls: Sequence[Call]) -> None:
    """Add the handover of an allocated container: the AM receives an executor's container at its next request."""
    allocated_ns, handed_ns = marks.get("ALLOCATED"), marks.get("ACQUIRED")
    calls = before(calls, handed_ns or 0)
    requests = [call for call in calls if call.method == "allocate"]
    if allocated_ns is None or handed_ns is None or not requests:
        heartbeat: Details = {"detail": what} if what == "AM" else {"detail": what, **kinds.AM_HEARTBEAT.fields()}
        lane.log(kinds.HAND_OUT_CONTAINER, allocated_ns, handed_ns, RM_LOG, **heartbeat)
        return
    last, source = requests[-1], f"{RM_LOG}, AM log"
    asked_ns = max(allocated_ns, last.start_ns)
    if slept_ns := poll_ns(calls, last.method, handed_ns):
        slept: Details = {"detail": what, **kinds.AM_HEARTBEAT_READ.fields(slept_ns)}
        lane.log(kinds.HAND_OUT_CONTAINER, allocated_ns, asked_ns, source, **slept)
    else:  # another thread made the request before, so the ApplicationMaster did not sleep
        lane.log(kinds.AM_ASKS_FOR_CONTAINER, allocated_ns, asked_ns, source)
    # the ResourceManager logs the handover while it answers
    for start_ns, end_ns in ((asked_ns, handed_ns), (handed_ns, last.end_ns)):
        lane.log(kinds.RPC, start_ns, max(start_ns, end_ns), f"AM log, {RM_LOG}", detail=last.method)


class ProcessStart(NamedTuple):
    """Kinds of spans and names of logs for the start of a container's process."""

    script: SpanKind
    boots: SpanKind
    registers: SpanKind
    jvm_log: str
    log: str


AM_START = ProcessStart(kinds.AM_LAUNCH_SCRIPT, kinds.AM_JVM_BOOTS, kinds.AM_REGISTERS, "AM JVM log", "AM log")
EXECUTOR_START = ProcessStart(
    kinds.EXECUTOR_LAUNCH_SCRIPT, kinds.EXECUTOR_JVM_BOOTS, kinds.EXECUTOR_REGISTERS, "executor JVM log", "executor log"
)


def add_process_start(
    lane: LaneBuilder,
    start: ProcessStart,
    begun: tuple[int | None, int | None, int | None],
    ended: tuple[int | None, str, bool],
) -> None:
    """Add the start of a container's process. `begun`: start of the container, of its JVM, and of its log."""
    running_ns, jvm_ns, logged_ns = begun
    end_ns, end_source, truncated = ended
    lane.add(start.script, running_ns, jvm_ns or logged_ns or end_ns, f"{NM_LOG}, {start.jvm_log}")
    lane.add(start.boots, jvm_ns, logged_ns or end_ns, f"{start.jvm_log}, {start.log}")
    lane.add(start.registers, logged_ns, end_ns, f"{start.log}, {end_source}", truncated=truncated)
