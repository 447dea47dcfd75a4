"""Table of the kinds of evidence: files, layers whose time they show, consequence of their absence; missing evidence.

A run without a decisive kind is invalid: spans with its code in `hidden_by` lose their time to `unattributed`. Without
any other kind, some figures, checks or bounds are missing, and the time of the layers stays the same.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from dlobd.bundle import files
from dlobd.evidence.evidence import Evidence
from dlobd.layers import CHANNEL, FEED, HDFS, LAUNCHER, SPARK, TENSORFLOW, USER, YARN
from dlobd.spans import EvidenceFile


@dataclass(frozen=True, slots=True)
class EvidenceKind:
    """One kind of evidence."""

    name: str
    globs: str  # names of its files below the bundle, separated by spaces; a star also matches slashes
    unknown: str  # the facts that are unknown without it, in words
    layers: tuple[str, ...] = ()  # layers whose time it shows
    missing: EvidenceFile | None = None  # its code in the column `hidden_by` of span kinds

    @property
    def files(self) -> list[str]:
        """Names of its files below the bundle, as globs."""
        return self.globs.split()

    @property
    def decides(self) -> bool:
        """True if the breakdown depends on it."""
        return self.missing is not None or self in (MARKERS, COUNTERS, ESSENTIAL)


_PYTHON = (LAUNCHER, FEED, HDFS, TENSORFLOW, CHANNEL, USER)
_SPARK = (SPARK, *_PYTHON)
_ALL = (YARN, *_SPARK)
_YARN = (YARN, SPARK)
_CONTAINERS, _DAEMONS, _CODE = files.CONTAINER_LOGS, files.DAEMON_LOGS, EvidenceFile

# in search order: the first kind with a matching glob is the kind of a file

DRIVER_SPANS = EvidenceKind("spans of the driver", "spans/driver/*", "its work and waits", _ALL, _CODE.DRIVER_SPANS)
RANK_SPANS = EvidenceKind("spans of a rank", "spans/rank-*", "its work, and waits for it", _ALL, _CODE.RANK_SPANS)
WORKER_SPANS = EvidenceKind("spans of Python workers", "spans/*", "work of Python workers", _SPARK, _CODE.WORKER_SPANS)
CHILD_SPANS = EvidenceKind("spans of forked processes", "", "imports of processes that your code forked")
DRIVER_LOG = EvidenceKind(
    "driver log",
    f"{files.DRIVER_LOG} {files.DRIVER_STDERR}",
    "submission, waits for YARN and for executors, jobs and their tasks",
    _ALL,
    _CODE.DRIVER_LOG,
)
NATIVE_LOG = EvidenceKind("log of the parent process", "", "messages of the ranks; no figure uses it")
DRIVER_OUTPUT = EvidenceKind("driver output", files.DRIVER_STDOUT, "output of the job; no figure uses it")
LOGGING = EvidenceKind("logging configuration", "logs/log4j2-*.properties", "levels of shown lines; no figure uses it")
DRIVER_JVM = EvidenceKind(
    "driver JVM log", files.DRIVER_JVM_LOG, "start and exit of spark-submit's JVM", (SPARK,), _CODE.DRIVER_JVM_LOG
)
MASTER_LOG = EvidenceKind("ApplicationMaster log", "", "executors' containers, and their requests", _ALL, _CODE.AM_LOG)
EXECUTOR_LOG = EvidenceKind(
    "executor log",
    f"{_CONTAINERS}/*/{files.SPARK_LOG} {_CONTAINERS}/*/stderr",
    "start of the executor, and start and end of its tasks",
    _SPARK,
    _CODE.EXECUTOR_LOG,
)
CONTAINER_JVM = EvidenceKind("container JVM log", f"{_CONTAINERS}/*/jvm.log", "start of the JVM before its log")
CONTAINER_FILES = EvidenceKind("other files of containers", f"{_CONTAINERS}/*", "its output, and YARN's launch script")
RM_LOG = EvidenceKind(
    "ResourceManager log",
    f"{_DAEMONS}/resourcemanager.log",
    "transitions in YARN that its REST record lacks",
    _YARN,
    _CODE.RM_LOG,
)
NM_LOG = EvidenceKind(
    "NodeManager log",
    f"{_DAEMONS}/nodemanager-*.log",
    "launch, localisation and start of the node's containers",
    _YARN,
    _CODE.NM_LOG,
)
AUDIT_LOG = EvidenceKind(
    "NameNode audit log",
    f"{_DAEMONS}/namenode-audit.log",
    "end of staging and of the event log, the NameNode's operations, and the first touch of the data",
    (HDFS,),
)
NAMENODE_LOG = EvidenceKind("NameNode log", f"{_DAEMONS}/namenode.log", "retries of closes that HDFS refused", (HDFS,))
TRACE_LOG = EvidenceKind(
    "DataNode client trace",
    f"{_DAEMONS}/datanode-*-clienttrace.log",
    "HDFS's share of the time of Spark's reads",
    (HDFS,),
)
DATANODE_LOG = EvidenceKind("DataNode log", f"{_DAEMONS}/datanode-*.log", "the NameNode's part of WebHDFS", (HDFS,))
DAEMON_LOGS = EvidenceKind("other daemons' logs", f"{_DAEMONS}/*", "reason of a daemon's failure; no figure uses it")
EVENT_LOG = EvidenceKind("Spark event log", "evidence/*event-log*", "Spark's metrics, and the addresses of its network")
RM_RECORD = EvidenceKind(
    "ResourceManager record",
    "evidence/*rm-app.json evidence/*rm-attempts.json",
    "YARN's final status and resource charge",
)
MARKERS = EvidenceKind("done-markers", files.MARKERS, "steps, samples, losses and accuracy of the ranks")
INPUT_RECORDS = EvidenceKind("records of the input", f"{files.BLOCKS} {files.CHECKSUMS}", "its size, checksums, blocks")
HOSTS = EvidenceKind("addresses", f"{files.HOSTS} {files.CLIENT_INTERFACES}", "the network that Spark and HDFS used")
COUNTERS = EvidenceKind("transport counters of a rank", "", "the transport of the rank's exchange")
INVENTORY = EvidenceKind("inventory", files.COLLECTED, "the collected files, and files that could not be collected")
BEFORE = EvidenceKind(
    "measurements before the run",
    f"{files.SPAN_COST} {files.NOISE} {files.PAGE_CACHE} {files.ENVIRONMENT_CACHE}",
    "cost of recording, noise of the machine, or content of the page cache",
)
RESOURCES = EvidenceKind("resource samples", files.RESOURCES, "CPU, memory and disk use")
MEMORY = EvidenceKind("container metrics", files.NM_CONTAINERS, "the peak memory of an executor")
DAEMONS = EvidenceKind("list of daemons", files.DAEMONS, "the daemons of the cluster and their deaths")
CODE = EvidenceKind("own code", f"{files.SCRIPT} {files.MODEL}", "the job's source code (only its sha256 remains)")
ESSENTIAL = EvidenceKind("window and job", f"{files.WINDOW} {files.JOB}", "the job and its wall time; no figure exists")
GENERATION = EvidenceKind("generation of the data set", "logs/generation/*", "the data set's generation before the run")

KINDS = tuple(row for row in [*globals().values()] if isinstance(row, EvidenceKind))


def kind_of(name: str) -> EvidenceKind | None:
    """Return the kind of evidence of a file in a bundle; None for an unknown file."""
    return next((kind for kind in KINDS if any(fnmatchcase(name, glob) for glob in kind.files)), None)


ALL_LANES = ("*",)


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """An absent or incomplete source."""

    kind: EvidenceKind
    what: str  # the name of the file, or a description of the process
    how: str  # the defect, and its proof
    lanes: tuple[str, ...] = ()  # patterns (`fnmatch`) of lanes whose spans may contain time of other layers
    since_ns: int = 0  # spans that end later are affected; 0: all spans
    layers: tuple[str, ...] = ()  # layers of the kind that take part in the run
    process: str = ""  # ID of the process whose span file is missing or incomplete

    @property
    def sentence(self) -> str:
        """A line for users: the missing source, its defect, and the consequence."""
        layers = f"; affected layers: {', '.join(self.layers)}" if self.layers else ""
        return f"{self.what} {self.how}; unknown as a result: {self.kind.unknown}{layers}"


def process_id(directory: str, pid: int | str) -> str:
    """Return the ID of a process that recorded spans. A PID alone is unique only inside a container."""
    return f"{directory}/{pid}"


def lanes_of_executor(executor: str) -> tuple[str, ...]:
    """Return patterns of the lanes of all task slots of an executor."""
    return f"executor-{executor}", f"executor-{executor}/slot-*"


def ended_well(evidence: Evidence) -> bool:
    """Return True if no process of the run was killed, so that each source must be complete."""
    return bool(evidence.window["exit_code"] == 0 and not evidence.window["ended_by"])


def killed(evidence: Evidence) -> set[str]:
    """Return the containers of executors that were lost or removed before the end, and of lost attempts: their records
    may be truncated. So may those of an executor that was still starting when the application ended."""
    log = evidence.driver.log
    starting = {name for name, own in evidence.executors.items() if name not in log.registered and not own.registered}
    gone = {*log.gone, *log.removed, *starting}
    lost = (found for executor, found in evidence.executor_containers.items() if executor in gone)
    return {*lost, *evidence.lost_containers}
