"""Phases of Spark's JVMs that their logs show from begin to end.

A phase is one call, or one block, of Spark's source that one thread runs: a statement that logs stands right before it,
or is its first, and another one right after it. The comments name them, as of Spark 4.3. What lies between two phases
stays between marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlobd.attribution.importers.jvm import JvmLife
from dlobd.attribution.importers.log4j import RESOLUTION_NS, STATUS_RESOLUTION_NS, LogLine
from dlobd.attribution.lanes.builder import LaneBuilder

PAUSE_RESOLUTION_NS = 1_000_000
"""Of a collection: its line comes after it, and tells its length to a microsecond."""
_SIGNALS = "^Registering signal handler for INT"
_SECURITY = "^Changing view acls to:"
_SECURITY_DONE = "^SecurityManager: authentication"
_RM_PROXY = "^Connecting to ResourceManager"


@dataclass(frozen=True, slots=True)
class Phase:
    """The name of a span, and regular expressions of the messages by which it begins and ends.

    handed_on: another thread goes on, and sees the end.
    """

    name: str
    begins: str
    ends: str
    handed_on: bool = False


EXECUTOR = (
    # CoarseGrainedExecutorBackend.run: SparkHadoopUtil.runAsSparkUser, until its body runs
    Phase("executor logs in", _SIGNALS, _SECURITY),
    # the body's first half: an RpcEnv of its own, by which it asks the driver for its settings
    Phase("executor fetches settings", _SECURITY, _SECURITY),
    # SparkEnv.createExecutorEnv, until the endpoint in it starts
    Phase("executor creates SparkEnv", _SECURITY, "^Connecting to driver: ", handed_on=True),
    # CoarseGrainedExecutorBackend.onStart, until its message was answered
    Phase("executor asks to be registered", "^Connecting to driver: ", "^Successfully registered with driver"),
)
APPLICATION_MASTER = (
    # ApplicationMaster.main, until run
    Phase("AM logs in", _SIGNALS, "^ApplicationAttemptId: "),
    # run: the file system of the staging directory
    Phase("AM opens staging", "^ApplicationAttemptId: ", _SECURITY),
    # YarnRMClient.register: AMRMClient.start
    Phase("AM creates proxy of ResourceManager", _RM_PROXY, "^Registering the ApplicationMaster"),
)
REQUEST = (
    # ApplicationMaster.runExecutorLauncher: RpcEnv.setupEndpointRef
    Phase("AM connects to driver", "Response <- .*: registerApplicationMaster", "^Preparing Local resources"),
    # createAllocator: prepareLocalResources, and the executors' launch context, whose text begins with a new line
    Phase("AM prepares launch context", "^Preparing Local resources", "^$"),
    # YarnRMClient.createAllocator, until its first allocateResources
    Phase("AM creates allocator", "^$", "^Will request "),
    # YarnAllocator.updateResourceRequests
    Phase("AM prepares container requests", "^Will request ", "^Submitted .* container requests"),
)
SUBMISSION = (
    # yarn.Client.submitApplication: YarnClient.start, until its first call
    Phase("create proxy of ResourceManager", _RM_PROXY, "Call -> .*: getNewApplication"),
    # the file system of the staging directory, until verifyClusterResources
    Phase("open staging", "^Application ID is assigned", "^resource-types.xml not found|^Verifying our application"),
    # createContainerLaunchContext, which ends with a SecurityManager
    Phase("create launch context", "^Setting up container launch context for our AM", _SECURITY_DONE),
)
DRIVER = (
    # SparkContext's constructor: its first block, until SparkEnv.create
    Phase("prepare settings", "^Running Spark version", _SECURITY),
    # SparkEnv.create, whose first statement makes a SecurityManager, and whose last registers this endpoint
    Phase("create SparkEnv", _SECURITY, "^Registering OutputCommitCoordinator"),
    # SparkContext.createTaskScheduler and its start, until yarn.Client starts
    Phase("create task scheduler", "^Using .*ShuffleManager$", _RM_PROXY),
    *SUBMISSION,
)


def add_phases(
    lane: LaneBuilder, lines: Iterable[LogLine], phases: Iterable[Phase], source: str, until_ns: int | None = None
) -> None:
    """Adds the phases that `lines` of one JVM show, each of them after the one before it has begun.

    Args:
        until_ns: when what they belong to was over, by the record of another process.
    """
    rest = [line for line in lines if line.thread]
    for phase in phases:
        begun = next((index for index, line in enumerate(rest) if re.search(phase.begins, line.message)), None)
        if begun is None:
            continue
        first, rest = rest[begun], rest[begun + 1 :]
        alike = rest if phase.handed_on else [line for line in rest if line.thread == first.thread]
        ended_ns = next((line.at_ns for line in alike if re.search(phase.ends, line.message)), None)
        if ended_ns is not None and (until_ns is None or first.at_ns < until_ns):
            end_ns = ended_ns if until_ns is None else min(ended_ns, until_ns)
            lane.add("spark", phase.name, first.at_ns, end_ns, source, resolution_ns=RESOLUTION_NS)


FIRST = (
    # CoarseGrainedExecutorBackend.run: Utils.initDaemon, whose argument configures log4j; it names the process
    ("executor names its process", "Started daemon with process name: "),
    # ApplicationMaster.main: SignalUtils.registerLogger, whose argument configures log4j
    ("AM registers signal handlers", "Registering signal handler for TERM"),
)
"""Phases from log4j's configuration to the first line of a log, and what that line begins with."""


def add_boot(
    lane: LaneBuilder,
    life: JvmLife | None,
    configured: tuple[int, int] | None,
    first: LogLine | None,
    jvm_log: str,
    own_log: str,
) -> None:
    """Adds what a JVM says of its own start: it creates itself, and log4j is configured.

    Args:
        configured: begin and end of the latter.
        first: the first line of the log.
    """
    if life:
        lane.add("spark", "create JVM", life.start_ns, life.created_ns, jvm_log)
    if configured:
        lane.add("spark", "configure log4j", *configured, own_log, resolution_ns=STATUS_RESOLUTION_NS)
    for name, begins in FIRST:
        if configured and first and first.message.startswith(begins):
            lane.add("spark", name, configured[1], first.at_ns, own_log, resolution_ns=STATUS_RESOLUTION_NS)


def add_pauses(lane: LaneBuilder, life: JvmLife | None, start_ns: int | None, end_ns: int | None, jvm_log: str) -> None:
    """Adds the garbage collections in [start, end), in which the lane is in the JVM's hands.

    Not one inside a call of the lane that is answered later: the lane waits for another process then, which a pause of
    its own does not hold up."""
    if life is None or life.created_ns is None or start_ns is None or end_ns is None:
        return
    calls = [span for span in lane.spans if span.layer in ("yarn", "hdfs")]
    for begin, until in life.pauses:
        waits = any(call.start_ns <= begin and until + RESOLUTION_NS < call.end_ns for call in calls)
        if start_ns <= begin and until <= end_ns and not waits:
            lane.add("spark", "GC pause", begin, until, jvm_log, resolution_ns=PAUSE_RESOLUTION_NS)
