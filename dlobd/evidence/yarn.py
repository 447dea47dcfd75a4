"""Reads an application and its containers from the logs of the ResourceManager and the NodeManagers."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dlobd.evidence.facts import RmApplication
from dlobd.evidence.log4j import LogLine

# container IDs have an epoch after a restart of the ResourceManager: container_e01_<timestamp>_...
CONTAINER = re.compile(r"\bcontainer_(?:e\d+_)?(\d+_\d+)_(\d+)_\d+\b")
"""Pattern of a container ID. Groups: timestamp and number of the application, and the attempt."""
_ATTEMPT = re.compile(r"\bappattempt_\d+_\d+_(\d+)\b")


def attempt_of(container: str) -> int:
    """Return the number of a container's attempt, from 1; 0 for a name that is no container ID."""
    match = CONTAINER.search(container)
    return int(match[2]) if match else 0


class Attempts:
    """The attempts of one application. The container with the lowest ID runs the ApplicationMaster."""

    def __init__(self, containers: Iterable[str]) -> None:
        self._ams: dict[int, str] = {}
        for container in sorted(containers):
            self._ams.setdefault(attempt_of(container), container)

    @property
    def ams(self) -> list[str]:
        """The ApplicationMaster's container of each attempt, in order."""
        return list(self._ams.values())

    @property
    def am(self) -> str:
        """The ApplicationMaster's container of the last attempt; empty without an attempt."""
        return self.ams[-1] if self._ams else ""

    def am_of(self, container: str) -> str:
        """Return the ApplicationMaster's container of a container's attempt; empty without an attempt."""
        return self._ams.get(attempt_of(container), "")


@dataclass(slots=True)
class Marks:
    """First time of each named transition, and its log line."""

    at: dict[str, int] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, line: LogLine) -> None:
        """Store a line, unless the name has an earlier line."""
        if name not in self.at:
            self.at[name] = line.at_ns
            self.source[name] = f"{line.source}: {line.message[:120]}"


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node without heartbeats, which the ResourceManager marked lost, or an unhealthy node, such as of a full disk.
    YARN kills the containers of both."""

    at_ns: int
    node: str  # host:port of its NodeManager
    patience: str = ""  # timeout, as the ResourceManager logs it: 30 secs
    unhealthy: str = ""  # the NodeManager's reason


@dataclass(slots=True)
class YarnLife:
    """The transitions of an application and its containers, without unused reservations."""

    application: Marks  # SUBMITTED ACCEPTED RUNNING FINISHING FINISHED, and ATTEMPT_RUNNING of the first attempt
    attempts: dict[int, Marks]  # by number, from 1: SUBMITTED SCHEDULED ALLOCATED LAUNCHED RUNNING FINISHED FAILED
    containers: dict[str, Marks]  # ALLOCATED ACQUIRED START_REQUEST LOCALIZING SCHEDULED RUNNING EXITED COMPLETED
    diagnostics: list[str]
    lost_nodes: list[LostNode]

    def attempt(self, container: str) -> Marks:
        """Return the ResourceManager's marks of a container's attempt."""
        return self.attempts.get(attempt_of(container), Marks())


def add_rest_times(life: YarnLife, record: RmApplication, monotonic_ns: Callable[[int], int]) -> None:
    """Add times of the ResourceManager's REST record, for an application without the ResourceManager's log."""
    times: dict[str, Literal["startedTime", "finishedTime"]] = {"SUBMITTED": "startedTime", "FINISHED": "finishedTime"}
    for state, key in times.items():
        if at_ms := record.get(key):
            life.application.at[state] = monotonic_ns(at_ms)
            life.application.source[state] = f"RM REST: {key}"


def joined(lives: Sequence[YarnLife]) -> YarnLife:
    """Return the transitions of the first application, with the containers and diagnostics of all."""
    first = lives[0]
    containers = {name: marks for life in lives for name, marks in life.containers.items()}
    diagnostics = [line for life in lives for line in life.diagnostics]
    return YarnLife(first.application, first.attempts, containers, diagnostics, first.lost_nodes)


# in the ResourceManager: `APP State change from A to B on event = E`
_APP_STATE = re.compile(r"State change from (\w+) to (\w+) on event")
_RM_CONTAINER = re.compile(r"Container Transitioned from (\w+) to (\w+)")
_EXPIRED = re.compile(r"Expired:(\S+:\d+) Timed out after (\d+ secs)")
_UNHEALTHY = re.compile(r"Node (\S+:\d+) reported UNHEALTHY with details: (?:.* \[ )?(.+?)(?: \])? *$")
_LIMIT = re.compile(r"\bis (?:running .*memory|logging .*) limit")
_NM_CONTAINER = re.compile(r"transitioned from (\w+) to (\w+)")


def life(resourcemanager: Iterable[LogLine], nodemanagers: Iterable[LogLine], application_id: str) -> YarnLife:
    """Return the transitions of one application, application_<timestamp>_<number>."""
    number = application_id.removeprefix("application_")
    # application 1000 is not application 10000
    ours = re.compile(rf"(?<!\d){re.escape(number)}(?!\d)")
    result = YarnLife(Marks(), {}, {}, [], [])

    def container_of(message: str) -> Marks | None:
        match = CONTAINER.search(message)
        return result.containers.setdefault(match[0], Marks()) if match and match[1] == number else None

    for line in resourcemanager:
        if expired := _EXPIRED.search(line.message):
            result.lost_nodes.append(LostNode(line.at_ns, expired[1], expired[2]))
        elif unhealthy := _UNHEALTHY.search(line.message):
            result.lost_nodes.append(LostNode(line.at_ns, unhealthy[1], unhealthy=unhealthy[2]))
        if not ours.search(line.message):
            continue
        if line.logger.endswith("RMAppImpl") and (state := _APP_STATE.search(line.message)):
            result.application.put(state[2], line)
        elif line.logger.endswith("RMAppAttemptImpl") and (state := _APP_STATE.search(line.message)):
            result.application.put(f"ATTEMPT_{state[2]}", line)
            if attempt := _ATTEMPT.search(line.message):
                result.attempts.setdefault(int(attempt[1]), Marks()).put(state[2], line)
        elif line.logger.endswith("RMContainerImpl") and (state := _RM_CONTAINER.search(line.message)):
            marks = container_of(line.message)
            if marks:
                # the ResourceManager logs RUNNING one heartbeat late: the NodeManager's line counts
                marks.put({"RUNNING": "RM_RUNNING"}.get(state[2], state[2]), line)
        elif line.level in ("WARN", "ERROR"):
            result.diagnostics.append(line.message)
    for line in nodemanagers:
        if not ours.search(line.message):
            continue
        if "Start request for" in line.message:
            name = "START_REQUEST"
        elif line.logger.endswith("ContainerImpl") and (state := _NM_CONTAINER.search(line.message)):
            name = "EXITED" if state[2].startswith("EXITED") else state[2]
        else:
            if _LIMIT.search(line.message):
                result.diagnostics.append(line.message)
            continue
        if marks := container_of(line.message):
            marks.put(name, line)
    # a dropped reservation has no end in the log, and is not charged
    for name, marks in list(result.containers.items()):
        if "RESERVED" in marks.at and "ALLOCATED" not in marks.at:
            del result.containers[name]
    return result
