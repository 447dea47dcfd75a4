"""The lane of the YARN application: from the submit RPC over the ApplicationMaster's start to its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from dlobd.attribution.importers import rpc
from dlobd.attribution.importers.attempts import attempt_of
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.log4j import RESOLUTION_NS
from dlobd.attribution.importers.spark import Asking
from dlobd.attribution.importers.yarn import Marks
from dlobd.attribution.lanes import calls, jvm
from dlobd.attribution.lanes.builder import LaneBuilder
from dlobd.schema import Process, Span

LANE = "application"
RM_LOG = "RM log"
NM_LOG = "NM log"
RM_REST = "RM REST"
REST_RESOLUTION_NS = 1_000_000
"""REST speaks of milliseconds."""
NM_HEARTBEAT = "NodeManager heartbeat (yarn.resourcemanager.nodemanagers.heartbeat-interval-ms, 1 s)"
NM_HEARTBEAT_SET = "NodeManager heartbeat, by the driver's settings"
NM_HEARTBEAT_NS = 1_000_000_000
AM_HEARTBEAT = "ApplicationMaster heartbeat (spark.yarn.scheduler.initial-allocation.interval, 0.2 s, doubling to 3 s)"
AM_HEARTBEAT_NS = 3_000_000_000
AM_HEARTBEAT_READ = "ApplicationMaster asks while containers are missing (intervals of its log)"


def nm_heartbeat(evidence: Evidence) -> dict[str, Any]:
    """How often a NodeManager reports, by the settings of the run where they are known: fields of a span."""
    settings = evidence.event_log.hadoop_settings
    set_ms = settings.get("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "")
    if set_ms.isdigit():
        return {"cause": NM_HEARTBEAT_SET, "cause_period_ns": int(set_ms) * 1_000_000}
    return {"cause": NM_HEARTBEAT, "cause_period_ns": NM_HEARTBEAT_NS}


def build(evidence: Evidence, host: str) -> list[Span]:
    """The application's spans; empty where it was never submitted."""
    lane = LaneBuilder(LANE, Process(host, "application-master", 0, 0))
    app = evidence.yarn.application.at
    lane.add(
        "yarn", "accept application", app.get("SUBMITTED"), app.get("ACCEPTED"), RM_LOG, resolution_ns=RESOLUTION_NS
    )
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
    if evidence.cluster_mode:
        # the container's process is the driver: its start ends where its Python's begins
        name = "AM runs the driver"
        until_ns = (max((span.end_ns for span in python.spans), default=None) if python else None) or until_ns
    else:
        name = "AM serves the driver"  # an idle ApplicationMaster only waits for its driver
    lane.add("spark", name, from_ns, until_ns, f"AM log, {RM_LOG}", waits_for=("driver",))
    _add_jvm(lane, evidence, last, from_ns)
    lane.add("spark", "AM stops", until_ns, unregister or finished, "AM log", resolution_ns=RESOLUTION_NS)
    lane.add("yarn", "unregister application", unregister, finished, "AM log, " + RM_LOG, resolution_ns=RESOLUTION_NS)
    return lane.spans


def _add_start(
    lane: LaneBuilder, evidence: Evidence, container: str, asked_ns: int | None, asked_source: str
) -> int | None:
    """An ApplicationMaster's container and process, until it serves or is the driver. Returns when it does."""
    marks = evidence.yarn.containers.get(container, Marks()).at
    am = evidence.am_log_of(container)
    life = evidence.container_jvm(container) if container else None
    begun = (life.start_ns if life else am.first.at_ns if am.first else None, "AM log")
    add_container_start(lane, marks, "AM", asked_ns, asked_source, begun, nm_heartbeat(evidence))
    running_ns = evidence.yarn.attempt(container).at.get("RUNNING")
    if evidence.cluster_mode:
        python = evidence.driver_process
        from_ns = python.process.start_ns if python else None
        registering_ns = None
    else:
        # it registers, and requests containers at once
        from_ns = running_ns or (am.requested.at_ns if am.requested else None)
        registering_ns = am.registering.at_ns if am.registering else None
    add_process_start(
        lane,
        "AM",
        (marks.get("RUNNING"), life.start_ns if life else None, am.first.at_ns if am.first else None),
        (registering_ns or from_ns, "/proc" if evidence.cluster_mode else "AM log", from_ns is None),
    )
    lane.add(
        "yarn", "register application", registering_ns, running_ns, f"AM log, {RM_LOG}", resolution_ns=RESOLUTION_NS
    )
    return from_ns


def lost_ns(evidence: Evidence, container: str) -> int | None:
    """When the ApplicationMaster of a lost attempt was gone, as far as any log says."""
    life, marks = evidence.container_jvm(container), evidence.yarn.containers.get(container, Marks()).at
    last = evidence.container_log(container)[-1:]
    ends = (life.exit_ns if life else None, marks.get("EXITED"), last[0].at_ns if last else None)
    return next(filter(None, ends), None)


def _add_lost_attempt(
    lane: LaneBuilder, evidence: Evidence, container: str, asked_ns: int | None, asked_source: str
) -> int | None:
    """An attempt whose ApplicationMaster was lost. With the driver in it all of it was lost, else the driver went on.
    Returns when the next attempt was made."""
    gone_ns, number = lost_ns(evidence, container), attempt_of(container)
    again_ns = evidence.yarn.attempts.get(number + 1, Marks()).at.get("SUBMITTED") or gone_ns
    if evidence.cluster_mode:
        lane.add("spark", "lost attempt", asked_ns, gone_ns, f"{RM_LOG}, {NM_LOG}", resolution_ns=RESOLUTION_NS)
    else:
        from_ns = _add_start(lane, evidence, container, asked_ns, asked_source)
        _add_jvm(lane, evidence, container, from_ns)
        lane.add("spark", "AM serves the driver", from_ns, gone_ns, f"AM log, {NM_LOG}", waits_for=("driver",))
    lane.add("yarn", "notice lost attempt", gone_ns, again_ns, f"{NM_LOG}, {RM_LOG}", resolution_ns=RESOLUTION_NS)
    return again_ns


def lost_attempts(evidence: Evidence) -> Iterator[str]:
    """A line for each attempt of the application that was made again."""
    for container in evidence.attempts.ams[:-1]:
        gone_ns, number = lost_ns(evidence, container), attempt_of(container)
        begun_ns = evidence.yarn.containers.get(container, Marks()).at.get("ALLOCATED")
        how = f" after {(gone_ns - begun_ns) / 1e9:.3f} s" if gone_ns and begun_ns else ""
        what = "the driver and all its work were" if evidence.cluster_mode else "its executors were"
        yield f"lost work: attempt {number} of the application lost its ApplicationMaster{how}; {what} started again"


def _add_jvm(lane: LaneBuilder, evidence: Evidence, container: str, registered_ns: int | None) -> None:
    """What the ApplicationMaster's JVM says of its start. In cluster mode the lane is the driver's from then on."""
    if not container:
        return
    lines = evidence.container_log(container)
    life = evidence.container_jvm(container)
    first = evidence.am_log_of(container).first
    jvm.add_boot(lane, life, evidence.log4j(container), first, "AM JVM log", "AM log")
    jvm.add_phases(lane, lines, jvm.APPLICATION_MASTER, "AM log", registered_ns)
    if registered_ns:
        calls.place(
            lane, rpc.calls(lines), lambda call: call.thread == "main" and call.start_ns < registered_ns, "AM log",
            [(registered_ns, sys.maxsize)],
        )  # fmt: skip
    jvm.add_pauses(lane, life, life.start_ns if life else None, registered_ns, "AM JVM log")


def add_container_start(
    lane: LaneBuilder,
    marks: dict[str, int],
    what: str,
    asked_ns: int | None,
    asked_source: str,
    begun: tuple[int | None, str],
    allocated_by: dict[str, Any],
    asking: Asking | None = None,
) -> None:
    """A container from its request to the start of its process: the same steps for the AM and for executors.

    Args:
        asking: how the ApplicationMaster asks for executors' containers, if it says so.
        begun: when the process itself says that it began, and where: the end of what no daemon's log tells apart.
        allocated_by: the heartbeat that its allocation waits for, as fields of a span.
    """
    begun_ns, begun_source = begun
    if "ALLOCATED" not in marks:
        until = (marks["START_REQUEST"], NM_LOG) if "START_REQUEST" in marks else begun
        steps_ = "allocate and launch" if "START_REQUEST" in marks else "allocate, localise and start"
        source, resolution_ns = f"{asked_source}, {until[1]}", _resolution_ns(asked_source)
        lane.add("yarn", f"{steps_} {what} container", asked_ns, until[0], source, resolution_ns=resolution_ns)
    elif "START_REQUEST" not in marks:
        handed_ns = marks.get("ACQUIRED") or marks["ALLOCATED"]
        source = f"{RM_LOG}, {begun_source}"
        lane.add(
            "yarn", f"localise and start {what} container", handed_ns, begun_ns, source, resolution_ns=RESOLUTION_NS
        )
    lane.add(
        "yarn",
        f"allocate {what} container",
        asked_ns,
        marks.get("ALLOCATED"),
        f"{asked_source}, {RM_LOG}",
        resolution_ns=RESOLUTION_NS,
        # the CapacityScheduler allocates when a node reports
        **allocated_by,
    )
    _add_hand_out(lane, marks, what, asking)
    taken_ns = marks.get("ACQUIRED")
    # the ResourceManager itself launches its AM's container; executors' are launched by the AM
    launcher = ("yarn", "launch AM container") if what == "AM" else ("spark", "AM launches executor container")
    lane.add(
        *launcher, taken_ns, marks.get("START_REQUEST"), f"{RM_LOG}, {NM_LOG}", resolution_ns=RESOLUTION_NS
    )  # fmt: skip
    for verb, opens, closes in (
        ("prepare", "START_REQUEST", "LOCALIZING"),
        ("localise", "LOCALIZING", "SCHEDULED"),
        ("start", "SCHEDULED", "RUNNING"),
    ):
        lane.add(
            "yarn", f"{verb} {what} container", marks.get(opens), marks.get(closes), NM_LOG, resolution_ns=RESOLUTION_NS
        )


def _add_hand_out(lane: LaneBuilder, marks: dict[str, int], what: str, asking: Asking | None) -> None:
    """An allocated container until it is handed over: the ResourceManager takes its AM's itself; an executor's waits
    until the AM asks again, which YARN has told it to do now and then. What it asks later than that is Spark's."""
    allocated_ns, handed_ns = marks.get("ALLOCATED"), marks.get("ACQUIRED")
    if allocated_ns is None or handed_ns is None or what == "AM" or asking is None:
        heartbeat = {} if what == "AM" else {"cause": AM_HEARTBEAT, "cause_period_ns": AM_HEARTBEAT_NS}
        lane.add("yarn", f"hand out {what} container", allocated_ns, handed_ns, RM_LOG, resolution_ns=RESOLUTION_NS,
                 **heartbeat)  # fmt: skip
        return
    before_ns, next_ns = asking.around(allocated_ns)
    due_ns = min(max(next_ns, allocated_ns), handed_ns)
    if before_ns < next_ns:
        lane.add(
            "yarn", f"hand out {what} container", allocated_ns, due_ns, f"{RM_LOG}, AM log",
            resolution_ns=RESOLUTION_NS, cause=AM_HEARTBEAT_READ, cause_period_ns=next_ns - before_ns,
        )  # fmt: skip
    else:
        due_ns = allocated_ns  # it had not begun to ask
    lane.add(
        "spark", f"AM asks for {what} container", due_ns, handed_ns, f"AM log, {RM_LOG}", resolution_ns=RESOLUTION_NS
    )


def _resolution_ns(source: str) -> int:
    return REST_RESOLUTION_NS if source == RM_REST else RESOLUTION_NS


def add_process_start(
    lane: LaneBuilder,
    what: str,
    begun: tuple[int | None, int | None, int | None],
    ended: tuple[int | None, str, bool],
) -> None:
    """A container's process from its start to its registration, as far as its own records tell the parts apart.

    Args:
        begun: when the NodeManager started it, when its JVM began, and when it first logged.
        ended: when it was registered or was gone, the source of that, and whether it was cut short.
    """
    running_ns, jvm_ns, logged_ns = begun
    end_ns, end_source, truncated = ended
    jvm_log, own_log = f"{what} JVM log", f"{what} log"
    lane.add("spark", f"{what} launch script", running_ns, jvm_ns or logged_ns or end_ns, f"{NM_LOG}, {jvm_log}")
    lane.add("spark", f"{what} JVM boots", jvm_ns, logged_ns or end_ns, f"{jvm_log}, {own_log}")
    lane.add("spark", f"{what} registers", logged_ns, end_ns, f"{own_log}, {end_source}", truncated=truncated)
