"""Reads calls of Hadoop's RPC clients inside Spark's JVMs. ProtobufRpcEngine2 logs two lines per call, in the calling
thread: before it connects, and at the response.

    19: Call -> /127.0.0.1:8020: getListing "/user"
    19: Response <- localhost/127.0.0.1:8020: getListing
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from dlobd.evidence.log4j import LogLine

_LOGGER = "ipc.ProtobufRpcEngine2"
_LINE = re.compile(r'(\d+): (Call ->|Response <-|Exception <-) (\S+): (\w+)(?: "([^"]*)")?')

_YARN_METHODS = """
    failApplicationAttempt forceKillApplication getApplicationAttemptReport getApplicationAttempts getApplicationReport
    getApplications getAttributesToNodes getClusterMetrics getClusterNodeAttributes getClusterNodeLabels
    getClusterNodes getContainerReport getContainers getLabelsToNodes getNewApplication getNewReservation
    getNodeToLabels getNodesToAttributes getQueueInfo getQueueUserAcls getResourceProfile getResourceProfiles
    getResourceTypeInfo moveApplicationAcrossQueues signalToContainer submitApplication updateApplicationPriority
    updateApplicationTimeouts
    allocate finishApplicationMaster registerApplicationMaster
    getContainerStatuses startContainers stopContainers updateContainer
"""
YARN_METHODS = frozenset(_YARN_METHODS.split())
"""Methods of Hadoop 3.5: ApplicationClientProtocol, ApplicationMasterProtocol, ContainerManagementProtocol."""

_OF_SEVERAL = frozenset({"getDelegationToken", "renewDelegationToken", "cancelDelegationToken"})
"""Methods that NameNode and ResourceManager share: the line does not show the callee."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call with a response or an exception."""

    method: str
    path: str  # path of the file; empty without a file
    thread: str
    start_ns: int
    end_ns: int

    @property
    def layer(self) -> Literal["yarn", "hdfs"]:
        """The layer of the called daemon."""
        return "yarn" if self.method in YARN_METHODS else "hdfs"


def calls(lines: Iterable[LogLine]) -> list[Call]:
    """Return the completed calls of one JVM, sorted by start. A thread makes one call at a time."""
    found: list[Call] = []
    open_: dict[str, tuple[LogLine, re.Match[str]]] = {}
    for line in lines:
        match = _LINE.match(line.message) if line.logger == _LOGGER else None
        if match is None or match[4] in _OF_SEVERAL:
            continue
        if match[2] == "Call ->":
            open_[match[1]] = line, match
        elif (begun := open_.pop(match[1], None)) and begun[1][4] == match[4]:
            first, call = begun
            found.append(Call(call[4], call[5] or "", first.thread, first.at_ns, line.at_ns))
    return sorted(found, key=lambda call: call.start_ns)


def calls_of_starts(made: Iterable[Call], starts_ns: Mapping[str, int]) -> dict[str, Call]:
    """Return the startContainers call of each container whose NodeManager logged its start during a call.

    starts_ns: container ID -> time of the NodeManager's log line. A call starts one container; of several calls at
    that time, the call that ends first is chosen, so that the others remain for later starts.
    """
    starts = (call for call in made if call.method == "startContainers")
    left = sorted(starts, key=lambda call: call.start_ns, reverse=True)
    open_: list[tuple[int, int, Call]] = []  # end, place
    found = {}
    for container, at_ns in sorted(starts_ns.items(), key=lambda item: item[1]):
        while left and left[-1].start_ns <= at_ns:
            heappush(open_, (left[-1].end_ns, -len(left), left.pop()))
        while open_ and open_[0][0] < at_ns:
            heappop(open_)
        if open_:
            found[container] = heappop(open_)[2]
    return found


def before(calls: Sequence[Call], at_ns: int | None) -> Sequence[Call]:
    """Return the calls that start before a time; all, if it is None. `calls` are sorted by start."""
    return calls if at_ns is None else calls[: bisect_left(calls, at_ns, key=lambda call: call.start_ns)]
