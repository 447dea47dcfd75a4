"""Checks of YARN: the ResourceManager's figures about an application, against logs and the client's clock."""

import re

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import CONTAINER_FILES, EXECUTOR_LOG, MASTER_LOG, RM_LOG, RM_RECORD
from dlobd.tracing.clock import WallToMonotonic
from dlobd.trust.base import NS_PER_S, Compared, Facts, Rules, daemon_trouble, external, in_applications, unknown

RULES = Rules(whole=True)

MEMORY_SHARE, LATE_S = 0.005, 0.25
"""Tolerances of the memory check: a fraction of the total, and seconds per container. A busy ResourceManager logs the
transitions of a container up to 0.25 s late."""

LEAVES_NS = 20 * NS_PER_S
"""Largest time between the exits of a client-mode driver and its ApplicationMaster, which then is killed."""

OVER = ("COMPLETED", "RELEASED", "KILLED", "EXPIRED")
"""States that end YARN's charge for a container; the first of them counts."""

_RM = (RM_LOG, RM_RECORD)
_CAPACITY = re.compile(r"Assigned container (container_\w+) of capacity <memory:(\d+),")
_CONTAINERS = re.compile(r"\btotalAllocatedContainers=(\d+)")
_START_MS = re.compile(r"\bstartTime=(\d+)")
_FINISH_MS = re.compile(r"\bfinishTime=(\d+)")


def _summary(evidence: Evidence, pattern: re.Pattern[str]) -> int | None:
    """Return a field of the ResourceManager's summary of the application."""
    application = f"appId={evidence.window['application_id']},"
    for line in evidence.daemon_log("resourcemanager"):
        if application in line.message and (match := pattern.search(line.message)):
            return int(match[1])
    return None


def _doubt(evidence: Evidence) -> str:
    return daemon_trouble(evidence, "resourcemanager", "nodemanager") or external(evidence)


@RULES.add("container-memory", "RM log: MB x seconds", "RM REST: memorySeconds", *_RM)
@in_applications
def _memory(facts: Facts) -> Compared | None:
    """Check that the ResourceManager charges the memory of each container times its lifetime.

    Failed in ae8eabc in some runs: the ResourceManager writes its summary while its scheduler still charges the last
    containers. The REST record is complete.
    """
    evidence = facts.evidence
    if not evidence.topology.has_yarn:
        return None
    charged = evidence.rm_app.get("memorySeconds")
    if charged is None:
        return unknown("the ResourceManager's record has no memorySeconds")
    log = evidence.daemon_log("resourcemanager")
    capacity = {m[1]: int(m[2]) for line in log if (m := _CAPACITY.search(line.message))}
    total = 0
    for container, marks in evidence.yarn.containers.items():
        begun, ended = marks.at.get("ALLOCATED"), min((marks.at[s] for s in OVER if s in marks.at), default=None)
        if begun is None or ended is None or container not in capacity:
            return unknown(f"the ResourceManager's log lacks the allocation or the end of {container}")
        total += capacity[container] * (ended - begun)
    if not total:
        return unknown("the ResourceManager's log has no container")
    used = total // NS_PER_S
    allowed = MEMORY_SHARE * max(used, charged) + LATE_S * sum(
        capacity[container] for container in evidence.yarn.containers
    )
    message = (
        f"the containers used {used:,} MB-seconds according to YARN's log; the ResourceManager charges {charged:,}"
    )
    return Compared(abs(used - charged) <= allowed, message, used, charged, _doubt(evidence))


@RULES.add(
    "containers",
    "log directories of containers",
    "ResourceManager: allocated and started containers",
    *_RM,
    MASTER_LOG,
    EXECUTOR_LOG,
    CONTAINER_FILES,
)
@in_applications
def _containers(facts: Facts) -> Compared | None:
    """Check that each container that YARN allocated and started left its logs. Detects containers whose logs were not
    collected. No real failure is known; a test edits YARN's summary."""
    evidence = facts.evidence
    if not evidence.topology.has_yarn:
        return None
    allocated = _summary(evidence, _CONTAINERS)
    if allocated is None or not evidence.yarn.containers:
        return unknown("the ResourceManager's log has no summary of the application")
    # Spark releases containers that it did not request, and an application may end before a container runs
    unused = sum("RM_RUNNING" not in marks.at for marks in evidence.yarn.containers.values())
    there, started = len(evidence.containers), allocated - unused
    message = f"{there} containers left logs; YARN started {started}"
    return Compared(there == started, message, there, started, _doubt(evidence))


@RULES.add("application-time", "ResourceManager: time outside of spark-submit's, ns", "clock readings: step, ns", *_RM)
@in_applications
def _inside(facts: Facts) -> Compared | None:
    """Check that the application ran only while spark-submit ran, by the ResourceManager's timestamps.

    Detects errors of the conversion from wall clock to monotonic clock. No real failure is known; a test shifts the
    finish time.
    """
    evidence, window = facts.evidence, facts.evidence.window
    if not evidence.topology.has_yarn or evidence.topology.by_hand:  # a job by hand has the ResourceManager's window
        return None
    start_ms, finish_ms = _summary(evidence, _START_MS), _summary(evidence, _FINISH_MS)
    if start_ms is None or finish_ms is None:
        start_ms, finish_ms = evidence.rm_app.get("startedTime"), evidence.rm_app.get("finishedTime")
    if not start_ms or not finish_ms:
        return unknown("the ResourceManager reports no start and end of the application")
    place = WallToMonotonic(evidence.anchors)
    early_ns = window["exec_ns"] - place.ms(start_ms + 1)  # a timestamp t stands for [t, t + 1 ms)
    late_ns = place.ms(finish_ms) - window["exit_ns"] - (0 if evidence.topology.driver_in_container else LEAVES_NS)
    outside_ns, allowed_ns = max(early_ns, late_ns, 0), abs(place.step_ns)
    message = "by YARN's clock the application ran only while spark-submit ran"
    if outside_ns > allowed_ns:
        message = (
            f"by YARN's clock the application ran {outside_ns / 1e9:.3f} s outside of spark-submit's time; "
            f"the limit from steps of the wall clock is {allowed_ns / 1e9:.3f} s"
        )
    return Compared(outside_ns <= allowed_ns, message, outside_ns, allowed_ns, _doubt(evidence))
