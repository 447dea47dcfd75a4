"""YARN: what the ResourceManager says of an application against its own transitions, the containers and the window."""

from __future__ import annotations

import re
from typing import Any

from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Comparison, Figures, Rule, disturbed, foreign
from dlobd.attribution.importers.evidence import Evidence
from dlobd.tracing.clock import WallToMonotonic

MS = 1_000_000

MEMORY_SHARE, MEMORY_MB_SECONDS = 0.005, 512
"""YARN adds up per container, in milliseconds, from its own clock; so much its sum may differ from the log's. A busy
ResourceManager logs a transition some milliseconds later; the second is for jobs of seconds."""

LENGTH_MS = 1000
"""The ResourceManager takes its stamps beside the transitions that it logs, not at them."""

LEAVES_NS = 20 * 10**9
"""In client mode the ApplicationMaster leaves by itself after the driver; after so long it would have been killed."""

OVER = ("COMPLETED", "RELEASED", "KILLED", "EXPIRED")
"""States in which a container is charged no more; KILLED is one that the application's end overtook."""

_CAPACITY = re.compile(r"Assigned container (container_\w+) of capacity <memory:(\d+),")
_CONTAINERS = re.compile(r"\btotalAllocatedContainers=(\d+)")
_START_MS = re.compile(r"\bstartTime=(\d+)")
_FINISH_MS = re.compile(r"\bfinishTime=(\d+)")
_CHANGE = re.compile(
    r"((?:application|appattempt|container)_\w+) (?:State change|Container Transitioned|transitioned) "
    r"from (\w+) to (\w+)"
)

THROUGH = (
    "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING", "FINAL_SAVING", "FINISHING",
    "ATTEMPT_SUBMITTED", "ATTEMPT_SCHEDULED", "ATTEMPT_ALLOCATED", "ATTEMPT_LAUNCHED", "ATTEMPT_RUNNING",
)  # fmt: skip
"""States of an application and its attempt."""

CONTAINER_THROUGH = ("ALLOCATED", "ACQUIRED", "START_REQUEST", "LOCALIZING", "SCHEDULED", "RUNNING")
"""States of a container on its way to its start, and its NodeManager's line about the request."""


def _summary(evidence: Evidence, pattern: re.Pattern[str]) -> int | None:
    """A field of the ResourceManager's summary of the application."""
    application = f"appId={evidence.window['application_id']},"
    for line in evidence.daemon_log("resourcemanager"):
        if application in line.message and (match := pattern.search(line.message)):
            return int(match[1])
    return None


def _doubt(evidence: Evidence) -> str:
    return disturbed(evidence, "resourcemanager", "nodemanager") or foreign(evidence)


def _not_on_yarn(evidence: Evidence) -> str:
    return "" if evidence.on_yarn else "this configuration does not use YARN"


def _memory_seconds(evidence: Evidence) -> Figures:
    log = evidence.daemon_log("resourcemanager")
    capacity = {m[1]: int(m[2]) for line in log if (m := _CAPACITY.search(line.message))}
    total, complete = 0, bool(evidence.yarn.containers)
    for container, marks in evidence.yarn.containers.items():
        begun, ended = marks.at.get("ALLOCATED"), min((marks.at[s] for s in OVER if s in marks.at), default=None)
        if begun is None or ended is None or container not in capacity:
            complete = False
            break
        total += capacity[container] * (ended - begun)
    # not its summary in the log: that is written while the last containers are being charged, now and then without one
    charged = evidence.rm_app.get("memorySeconds")
    return Figures(total // 10**9 if complete else None, charged, why=_not_on_yarn(evidence), doubt=_doubt(evidence))


def _containers(evidence: Evidence) -> Figures:
    given = _summary(evidence, _CONTAINERS)
    # Spark gives back what it did not ask for; nothing ever ran in such a container
    unused = sum("RELEASED" in m.at and "RM_RUNNING" not in m.at for m in evidence.yarn.containers.values())
    return Figures(
        len(evidence.containers) if evidence.containers else None,
        None if given is None else given - unused,
        why=_not_on_yarn(evidence),
        doubt=_doubt(evidence),
    )


def _inside(evidence: Evidence) -> Figures:
    if why := _not_on_yarn(evidence):
        return Figures(why=why)
    if evidence.by_hand:
        return Figures(why="the window is the ResourceManager's own")
    window, place = evidence.window, WallToMonotonic(evidence.anchors)
    start_ms, finish_ms = _summary(evidence, _START_MS), _summary(evidence, _FINISH_MS)
    if start_ms is None or finish_ms is None:
        start_ms, finish_ms = evidence.rm_app.get("startedTime"), evidence.rm_app.get("finishedTime")
    outside = None
    if start_ms and finish_ms:
        early = window["exec_ns"] - (place.ms(start_ms) + MS)  # a stamp t says [t, t + 1 ms)
        late = place.ms(finish_ms) - window["exit_ns"] - (0 if evidence.cluster_mode else LEAVES_NS)
        outside = max(early, late, 0)
    # it is unknown how far the wall clocks of several hosts differ
    return Figures(outside, abs(place.step_ns), doubt=_doubt(evidence))


def _length(evidence: Evidence) -> Figures:
    start_ms, finish_ms = _summary(evidence, _START_MS), _summary(evidence, _FINISH_MS)
    stamped = finish_ms - start_ms if start_ms and finish_ms else None
    at = evidence.yarn.application.at
    begun, ended = at.get("NEW_SAVING"), at.get("FINAL_SAVING")
    logged = (ended - begun) // MS if begun is not None and ended is not None else None
    doubt = _doubt(evidence)
    if not doubt and WallToMonotonic(evidence.anchors).step_ns > LENGTH_MS * MS // 2:
        doubt = "the wall clock was stepped during the run"
    return Figures(stamped, logged, why=_not_on_yarn(evidence), doubt=doubt)


def _elapsed(evidence: Evidence) -> Figures:
    start_ms, finish_ms = _summary(evidence, _START_MS), _summary(evidence, _FINISH_MS)
    stamped = finish_ms - start_ms if start_ms and finish_ms else None
    return Figures(evidence.rm_app.get("elapsedTime"), stamped, why=_not_on_yarn(evidence), doubt=_doubt(evidence))


def _chain(evidence: Evidence) -> Figures:
    """Each state machine logs from where to where it goes: one begins where the one before it ended. A reservation of
    the ResourceManager and the container that comes of it have one id, and are two machines."""
    breaks, seen = 0, 0
    for log in ("resourcemanager", *(d for d in evidence.daemon_logs if d.startswith("nodemanager"))):
        states: dict[str, str] = {}
        for line in evidence.daemon_log(log):
            if not (change := _CHANGE.search(line.message)):
                continue
            what, begin, end = f"{line.logger} {change[1]}", change[2], change[3]
            before = states.get(what, begin)
            breaks += before != begin and (before, begin) != ("RESERVED", "NEW")
            states[what] = end
            seen += 1
    return Figures(breaks, 0, doubt=_doubt(evidence)) if seen else Figures(why=_not_on_yarn(evidence))


def _states(evidence: Evidence) -> Figures:
    """Of an application that ended well, each state that every one goes through is in the ResourceManager's log."""
    at = evidence.yarn.application.at
    found = [state for state in THROUGH if state in at]
    return Figures(
        len(THROUGH), len(found) if len(found) > 1 else None, why=_not_on_yarn(evidence), doubt=_doubt(evidence)
    )


def _container_states(evidence: Evidence) -> Figures:
    """Of each container with a log, the steps to its start are in the logs of both managers."""
    known = [evidence.yarn.containers.get(container) for container in evidence.containers]
    found = sum(state in marks.at for marks in known if marks for state in CONTAINER_THROUGH)
    expected = len(CONTAINER_THROUGH) * len(evidence.containers)
    return Figures(
        expected or None,
        found if evidence.yarn.containers else None,
        why=_not_on_yarn(evidence),
        doubt=_doubt(evidence),
    )


def _record(evidence: Evidence) -> Figures:
    """What REST says of the application and the ResourceManager's summary, field by field."""
    rest = evidence.rm_app
    pairs = [
        (rest.get("startedTime"), _summary(evidence, _START_MS)),
        (rest.get("finishedTime"), _summary(evidence, _FINISH_MS)),
        (rest.get("memorySeconds"), _entry(rest, "memory-mb")),
        (rest.get("vcoreSeconds"), _entry(rest, "vcores")),
    ]
    if rest:
        pairs.append((int(rest.get("id") == evidence.window["application_id"]), 1))
    known = [(left, right) for left, right in pairs if left is not None and right is not None]
    if not known:
        return Figures(why=_not_on_yarn(evidence))
    return Figures(sum(left == right for left, right in known), len(known), doubt=_doubt(evidence))


def _entry(rest: dict[str, Any], key: str) -> int | None:
    entries = (rest.get("resourceSecondsMap") or {}).get("entry") or ()
    return next((int(entry["value"]) for entry in entries if entry["key"] == key), None)


RULES = (
    Rule(
        "container memory", "Memory times lifetime, summed over containers, is what the ResourceManager charges.",
        "transitions in the RM log x capacity, MB-seconds", "RM REST: memorySeconds",
        Comparison(
            f"within {MEMORY_SHARE:.1%} and {MEMORY_MB_SECONDS} MB-seconds",
            lambda left, right: abs(left - right) <= MEMORY_SHARE * max(left, right) + MEMORY_MB_SECONDS,
        ),
        _memory_seconds,
    ),
    Rule(
        "containers", "The containers with collected logs are those that YARN allocated and the job used.",
        "log directories of containers", "ResourceManager's totalAllocatedContainers, without unused ones",
        EQUAL, _containers, whole=True,
    ),
    Rule(
        "application inside the window", "By the ResourceManager's timestamps the application ran inside the window; "
        "in client mode its ApplicationMaster may exit up to 20 s after the driver.",
        "ResourceManager's startTime and finishTime: ns outside", "clock anchors: how far the wall clock moved, ns",
        NOT_MORE, _inside, whole=True,
    ),
    Rule(
        "application's length", "The ResourceManager's timestamps are as far apart as the transitions it logged.",
        "ResourceManager's finishTime - startTime, ms", "RM log: NEW_SAVING to FINAL_SAVING, ms",
        Comparison(f"within {LENGTH_MS} ms", lambda left, right: abs(left - right) <= LENGTH_MS), _length,
    ),
    Rule(
        "application's record", "The ResourceManager's REST API and its log agree.",
        "RM REST: elapsedTime, ms", "ResourceManager's finishTime - startTime, ms", EQUAL, _elapsed, whole=True,
    ),
    Rule(
        "states in a row", "Applications and containers left each state that they had come to, and no other.",
        "RM and NM logs: breaks", "-", EQUAL, _chain,
    ),
    Rule(
        "states of the application", "The ResourceManager logged each state that an application goes through.",
        "states", "RM log: states", EQUAL, _states, whole=True,
    ),
    Rule(
        "states of containers", "Each container with logs was allocated, acquired, requested, localised and started.",
        "states x containers", "RM and NM logs: states", EQUAL, _container_states, whole=True,
    ),
    Rule(
        "record and summary", "REST and the ResourceManager's summary have the same times, use and application.",
        "RM REST: fields that agree", "fields", EQUAL, _record,
    ),
)  # fmt: skip
