"""The lane of the YARN application: from the submit RPC over the ApplicationMaster's start to its end."""

from __future__ import annotations

from dlobd.importers.builder import LaneBuilder
from dlobd.importers.evidence import Evidence
from dlobd.importers.log4j import RESOLUTION_NS
from dlobd.importers.yarn import Marks
from dlobd.schema import Process, Span

LANE = "application"
RM_LOG = "ResourceManager log"
NM_LOG = "NodeManager log"
HEARTBEAT = "NodeManager heartbeat (yarn.resourcemanager.nodemanagers.heartbeat-interval-ms, 1 s)"


def build(evidence: Evidence, host: str) -> list[Span]:
    """The application's spans; empty where it was never submitted."""
    lane = LaneBuilder(LANE, Process(host, "application-master", 0, 0))
    app = evidence.yarn.application.at
    container = evidence.containers[0] if evidence.containers else ""
    marks = evidence.yarn.containers.get(container, Marks()).at
    lane.add(
        "yarn", "accept application", app.get("SUBMITTED"), app.get("ACCEPTED"), RM_LOG, resolution_ns=RESOLUTION_NS
    )
    lane.add(
        "yarn",
        "allocate AM container",
        app.get("ACCEPTED"),
        marks.get("ALLOCATED"),
        RM_LOG,
        resolution_ns=RESOLUTION_NS,
    )
    add_container_start(lane, marks, "AM")
    am = evidence.application_master
    registered = app.get("ATTEMPT_RUNNING")
    lane.add(
        "spark",
        "start AM process",
        marks.get("RUNNING"),
        registered,
        f"{NM_LOG}, {RM_LOG}",
        resolution_ns=RESOLUTION_NS,
    )
    unregister = am.unregistering.at_ns if am.unregistering else None
    finished = app.get("FINISHED")
    # an idle ApplicationMaster only waits for its driver
    lane.add(
        "spark", "AM serves the driver", registered, unregister or finished, "AM log, " + RM_LOG, waits_for=("driver",)
    )
    lane.add("yarn", "unregister application", unregister, finished, "AM log, " + RM_LOG, resolution_ns=RESOLUTION_NS)
    return lane.spans


def add_container_start(lane: LaneBuilder, marks: dict[str, int], what: str) -> None:
    """A container from its allocation to the start of its process: the same steps for the AM and for executors."""
    steps = (
        ("hand out", "ALLOCATED", "ACQUIRED", RM_LOG),
        ("launch", "ACQUIRED", "START_REQUEST", f"{RM_LOG}, {NM_LOG}"),
        ("prepare", "START_REQUEST", "LOCALIZING", NM_LOG),
        ("localise", "LOCALIZING", "SCHEDULED", NM_LOG),
        ("start", "SCHEDULED", "RUNNING", NM_LOG),
    )
    for verb, opens, closes, source in steps:
        lane.add(
            "yarn", f"{verb} {what} container", marks.get(opens), marks.get(closes), source, resolution_ns=RESOLUTION_NS
        )
