"""Adds phases of Spark's JVMs: parts of their start-up and submission with start and end in a log.

A phase is one call or block of Spark's source in one thread, with a log statement at its start and another at its end.
Comments name the calls, as of Spark 4.3. Time between two phases stays `between marks`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlobd import spans as kinds
from dlobd.evidence.jvm import JvmLife
from dlobd.evidence.log4j import RESOLUTION_NS, STATUS_RESOLUTION_NS, LogLine
from dlobd.spans import SpanKind
from dlobd.timeline.builder import LaneBuilder

PAUSE_RESOLUTION_NS = 1_000_000
"""Uncertainty of the times of a garbage collection, which is logged after its end."""
_SIGNALS = "^Registering signal handler for INT"
_SECURITY = "^Changing view acls to:"
_SECURITY_DONE = "^SecurityManager: authentication"
_RM_PROXY = "^Connecting to ResourceManager"


@dataclass(frozen=True, slots=True)
class Phase:
    """A kind of span, and regular expressions of the messages at its start and end."""

    kind: SpanKind
    begins: str
    ends: str
    handed_on: bool = False  # another thread continues, and logs the end


EXECUTOR = (
    # CoarseGrainedExecutorBackend.run: SparkHadoopUtil.runAsSparkUser, until its body runs
    Phase(kinds.EXECUTOR_LOGS_IN, _SIGNALS, _SECURITY),
    # the body's first half: it requests its settings from the driver with a separate RpcEnv
    Phase(kinds.EXECUTOR_FETCHES_SETTINGS, _SECURITY, _SECURITY),
    # SparkEnv.createExecutorEnv, until the endpoint in it starts
    Phase(kinds.EXECUTOR_CREATES_SPARK_ENV, _SECURITY, "^Connecting to driver: ", handed_on=True),
    # CoarseGrainedExecutorBackend.onStart, until its message was answered
    Phase(kinds.EXECUTOR_ASKS_TO_BE_REGISTERED, "^Connecting to driver: ", "^Successfully registered with driver"),
)
APPLICATION_MASTER = (
    # ApplicationMaster.main, until run
    Phase(kinds.AM_LOGS_IN, _SIGNALS, "^ApplicationAttemptId: "),
    # run: the file system of the staging directory
    Phase(kinds.AM_OPENS_STAGING, "^ApplicationAttemptId: ", _SECURITY),
    # YarnRMClient.register: AMRMClient.start
    Phase(kinds.AM_CREATES_RM_PROXY, _RM_PROXY, "^Registering the ApplicationMaster"),
)
REQUEST = (
    # ApplicationMaster.runExecutorLauncher: RpcEnv.setupEndpointRef
    Phase(kinds.AM_CONNECTS_TO_DRIVER, "Response <- .*: registerApplicationMaster", "^Preparing Local resources"),
    # createAllocator: prepareLocalResources, and the executors' launch context, whose text begins with a new line
    Phase(kinds.AM_PREPARES_LAUNCH_CONTEXT, "^Preparing Local resources", "^$"),
    # YarnRMClient.createAllocator, until its first allocateResources
    Phase(kinds.AM_CREATES_ALLOCATOR, "^$", "^Will request "),
    # YarnAllocator.updateResourceRequests
    Phase(kinds.AM_PREPARES_CONTAINER_REQUESTS, "^Will request ", "^Submitted .* container requests"),
)
SUBMISSION = (
    # yarn.Client.submitApplication: YarnClient.start, until its first call
    Phase(kinds.CREATE_RM_PROXY, _RM_PROXY, "Call -> .*: getNewApplication"),
    # the file system of the staging directory, until verifyClusterResources
    Phase(
        kinds.OPEN_STAGING, "^Application ID is assigned", "^resource-types.xml not found|^Verifying our application"
    ),
    # createContainerLaunchContext, which ends with a SecurityManager
    Phase(kinds.CREATE_LAUNCH_CONTEXT, "^Setting up container launch context for our AM", _SECURITY_DONE),
)
DRIVER = (
    # SparkContext's constructor: its first block, until SparkEnv.create
    Phase(kinds.PREPARE_SETTINGS, "^Running Spark version", _SECURITY),
    # SparkEnv.create, whose first statement makes a SecurityManager, and whose last registers this endpoint
    Phase(kinds.CREATE_SPARK_ENV, _SECURITY, "^Registering OutputCommitCoordinator"),
    # SparkContext.createTaskScheduler and its start, until yarn.Client starts
    Phase(kinds.CREATE_TASK_SCHEDULER, "^Using .*ShuffleManager$", _RM_PROXY),
    *SUBMISSION,
)


def add_phases(
    lane: LaneBuilder, lines: Iterable[LogLine], phases: Iterable[Phase], source: str, until_ns: int | None = None
) -> None:
    """Add the phases in the log of one JVM until `until_ns`, each after the start of the previous phase."""
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
            lane.log(phase.kind, first.at_ns, end_ns, source)


FIRST = (
    # CoarseGrainedExecutorBackend.run: Utils.initDaemon, whose argument configures log4j; it names the process
    (kinds.EXECUTOR_NAMES_ITS_PROCESS, "Started daemon with process name: "),
    # ApplicationMaster.main: SignalUtils.registerLogger, whose argument configures log4j
    (kinds.AM_REGISTERS_SIGNAL_HANDLERS, "Registering signal handler for TERM"),
)
"""Phases from log4j's configuration to the first line of a log, with the start of that line."""


def add_boot(
    lane: LaneBuilder,
    life: JvmLife | None,
    configured: tuple[int, int] | None,
    first: LogLine | None,
    jvm_log: str,
    own_log: str,
) -> None:
    """Add the creation of a JVM and the configuration of log4j. `first`: the first line of its log."""
    if life:
        lane.add(kinds.CREATE_JVM, life.start_ns, life.created_ns, jvm_log)
    if configured:
        lane.add(kinds.CONFIGURE_LOG4J, *configured, own_log, resolution_ns=STATUS_RESOLUTION_NS)
    for kind, begins in FIRST:
        if configured and first and first.message.startswith(begins):
            lane.add(kind, configured[1], first.at_ns, own_log, resolution_ns=STATUS_RESOLUTION_NS)


def add_pauses(lane: LaneBuilder, life: JvmLife | None, start_ns: int | None, end_ns: int | None, jvm_log: str) -> None:
    """Add the garbage collections in [start, end), except during calls to YARN or HDFS."""
    if life is None or life.created_ns is None or start_ns is None or end_ns is None:
        return
    calls = [span for span in lane.spans if span.layer in ("yarn", "hdfs")]
    for begin, until in life.pauses:
        waits = any(call.start_ns <= begin and until + RESOLUTION_NS < call.end_ns for call in calls)
        if start_ns <= begin and until <= end_ns and not waits:
            lane.add(kinds.GC_PAUSE, begin, until, jvm_log, resolution_ns=PAUSE_RESOLUTION_NS)
