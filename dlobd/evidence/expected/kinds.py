"""Table of the kinds of evidence: their files, the layers whose time they show, and the consequence of their absence.

The breakdown depends on a decisive kind: a run without it is invalid. Without another kind some figures, checks or
bounds are missing, and the numbers of the layers stay the same.

Without a kind that has a `missing` code, the own time of some spans may belong to another layer: attribution leaves
that time unattributed. The rows of these kinds of spans contain the code in their column `hidden_by`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from dlobd.bundle import files
from dlobd.layers import CHANNEL, FEED, HDFS, LAUNCHER, SPARK, TENSORFLOW, USER, YARN
from dlobd.spans import EvidenceFile


@dataclass(frozen=True, slots=True)
class EvidenceKind:
    """One kind of evidence.

    Attributes:
        files: globs below the bundle; a star also matches slashes.
        tells: layers whose time it shows.
        unknown: consequence of its absence, in words.
        decides: True if the breakdown depends on it.
        missing: its code in the column `hidden_by` of span kinds; None if no span depends on it.
    """

    name: str
    files: tuple[str, ...]
    tells: tuple[str, ...]
    unknown: str
    decides: bool = False
    missing: EvidenceFile | None = None


_PYTHON = (LAUNCHER, FEED, HDFS, TENSORFLOW, CHANNEL, USER)

DRIVER_SPANS = EvidenceKind(
    "spans of the driver",
    ("spans/driver/*",),
    (YARN, SPARK, *_PYTHON),
    "what its Python did and waited for",
    True,
    EvidenceFile.DRIVER_SPANS,
)
RANK_SPANS = EvidenceKind(
    "spans of a rank",
    ("spans/rank-*",),
    (YARN, SPARK, *_PYTHON),
    "what it did, and for how long others waited for it",
    True,
    EvidenceFile.RANK_SPANS,
)
WORKER_SPANS = EvidenceKind(
    "spans of Python workers",
    ("spans/*",),
    (SPARK, *_PYTHON),
    "what Spark's Python did in this executor",
    True,
    EvidenceFile.WORKER_SPANS,
)
DRIVER_LOG = EvidenceKind(
    "driver log",
    (files.DRIVER_STDERR,),
    (YARN, SPARK, *_PYTHON),
    "submission, waits for YARN and for executors, jobs and their tasks",
    True,
    EvidenceFile.DRIVER_LOG,
)
NATIVE_LOG = EvidenceKind("log of the parent process", (), (), "what ranks wrote to it; no figure uses it")
DRIVER_OUTPUT = EvidenceKind("driver output", (files.DRIVER_STDOUT,), (), "what the job printed; no figure uses it")
DRIVER_JVM = EvidenceKind(
    "driver JVM log",
    (files.DRIVER_JVM_LOG,),
    (SPARK,),
    "when spark-submit's JVM began and exited",
    True,
    EvidenceFile.DRIVER_JVM_LOG,
)
MASTER_LOG = EvidenceKind(
    "ApplicationMaster log",
    (),
    (YARN, SPARK, *_PYTHON),
    "which executor is which container, and when it asked for them",
    True,
    EvidenceFile.AM_LOG,
)
EXECUTOR_LOG = EvidenceKind(
    "executor log",
    (f"{files.CONTAINER_LOGS}/*/stderr",),
    (SPARK, *_PYTHON),
    "when it started, and when its tasks began and ended",
    True,
    EvidenceFile.EXECUTOR_LOG,
)
CONTAINER_JVM = EvidenceKind(
    "container JVM log", (f"{files.CONTAINER_LOGS}/*/jvm.log",), (), "when its JVM began, but for its first log line"
)
CONTAINER_FILES = EvidenceKind(
    "other files of containers", (f"{files.CONTAINER_LOGS}/*",), (), "what it printed, and what YARN wrote of its start"
)
RM_LOG = EvidenceKind(
    "ResourceManager log",
    (f"{files.DAEMON_LOGS}/resourcemanager.log",),
    (YARN, SPARK),
    "YARN's steps, but for the times of its REST record",
    True,
    EvidenceFile.RM_LOG,
)
NM_LOG = EvidenceKind(
    "NodeManager log",
    (f"{files.DAEMON_LOGS}/nodemanager-*.log",),
    (YARN, SPARK),
    "when its containers were launched, localised and started",
    True,
    EvidenceFile.NM_LOG,
)
AUDIT_LOG = EvidenceKind(
    "NameNode audit log", (f"{files.DAEMON_LOGS}/namenode-audit.log",), (HDFS,),
    "the ends of staging and of the event log, the NameNode's operations, and the first touch of the data",
)  # fmt: skip
NAMENODE_LOG = EvidenceKind(
    "NameNode log",
    (f"{files.DAEMON_LOGS}/namenode.log",),
    (HDFS,),
    "closes of files that HDFS did not accept at once",
)
TRACE_LOG = EvidenceKind(
    "DataNode client trace", (f"{files.DAEMON_LOGS}/datanode-*-clienttrace.log",), (HDFS,),
    "how much of Spark's reads is HDFS's",
)  # fmt: skip
DAEMON_LOGS = EvidenceKind(
    "other daemons' logs", (f"{files.DAEMON_LOGS}/*",), (), "why a daemon failed; no figure uses it"
)
EVENT_LOG = EvidenceKind(
    "Spark event log", (files.EVENT_LOG,), (), "Spark's own metrics, and the addresses of its network"
)
RM_RECORD = EvidenceKind(
    "ResourceManager record",
    (files.RM_APPLICATION, files.RM_ATTEMPTS),
    (),
    "how YARN says that it ended, and what it charged",
)
MARKERS = EvidenceKind("done-markers", (files.MARKERS,), (), "steps, samples, losses and accuracy of the ranks", True)
INPUT_RECORDS = EvidenceKind(
    "records of the input",
    (files.BLOCKS, files.CHECKSUMS),
    (),
    "whether what was read is what was stored, and where it lay",
)
HOSTS = EvidenceKind("addresses", (files.HOSTS, files.CLIENT_INTERFACES), (), "by which network Spark and HDFS went")
COUNTERS = EvidenceKind("transport counters of a rank", (), (), "by what its exchange went", True)
INVENTORY = EvidenceKind("inventory", (files.COLLECTED,), (), "what was collected, and what could not be had")
BEFORE = EvidenceKind(
    "measurements before the run", (files.SPAN_COST, files.NOISE, files.PAGE_CACHE), (),
    "what recording cost, the machine's noise, or what was in the page cache",
)  # fmt: skip
RESOURCES = EvidenceKind("resource samples", (files.RESOURCES,), (), "CPU, memory and disk use")
MEMORY = EvidenceKind("container metrics", (files.NM_CONTAINERS,), (), "the peak of an executor's memory")
DAEMONS = EvidenceKind("list of daemons", (files.DAEMONS,), (), "which daemons there were, and whether one died")
CODE = EvidenceKind("own code", (files.SCRIPT, files.MODEL), (), "what was run, beyond its sha256")
ESSENTIAL = EvidenceKind(
    "window and job", (files.WINDOW, files.JOB), (), "what was run, and when: nothing can be computed", True
)
GENERATION = EvidenceKind(
    "generation of the data set", ("logs/generation/*",), (), "how the data set was made before the run"
)

KINDS = (
    DRIVER_SPANS, RANK_SPANS, WORKER_SPANS, DRIVER_LOG, NATIVE_LOG, DRIVER_OUTPUT, DRIVER_JVM, MASTER_LOG, EXECUTOR_LOG,
    CONTAINER_JVM, CONTAINER_FILES, RM_LOG, NM_LOG, AUDIT_LOG, NAMENODE_LOG, TRACE_LOG, DAEMON_LOGS, EVENT_LOG,
    RM_RECORD, MARKERS, INPUT_RECORDS, HOSTS, COUNTERS, INVENTORY, BEFORE, RESOURCES, MEMORY, DAEMONS, CODE, ESSENTIAL,
    GENERATION,
)  # fmt: skip
"""All kinds, in the order of the search: a file is of the first kind with a matching glob."""


def kind_of(name: str) -> EvidenceKind | None:
    """Return the kind of a file of a bundle; None if the table has none."""
    return next((kind for kind in KINDS if any(fnmatchcase(name, glob) for glob in kind.files)), None)
