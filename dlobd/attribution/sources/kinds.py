"""THE table of sources: which files they are, which layers they tell, and what is unknown without them.

A source that decides is one on which the breakdown depends: a run without it is invalid. Without the others some
figures, audits or bounds are missing, and the layers' numbers stay what they are.

`hides` are names of spans whose own time may be another layer's where the source is missing: attribution leaves it
unattributed. All others say what they say without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from dlobd.bundle import files
from dlobd.tracing import names

IN_TASKS = ("task of *", "trainer in task", "not yet forked", "wait for a job", "wait for tasks of *", "job *")
"""What holds the work of Python in executors."""

WAITS = (
    names.AWAIT_RESERVATIONS, names.AWAIT_TRAINERS, names.FEED_JOB, names.BARRIER_JOB, names.TFCLUSTER_TRAIN,
    names.TFCLUSTER_INFERENCE, names.TFCLUSTER_RUN, names.TFCLUSTER_SHUTDOWN, names.INPUT_SPLITS, "JVM: *",
    names.WAIT_FOR_RANKS, names.WAIT_FOR_TRAINER, names.ALL_GATHER_ADDRESSES, names.GET, names.AWAIT_BLOCK,
    names.TELL_PLACES, names.AWAIT_PLACE,
)  # fmt: skip
"""Calls that wait for another process: what that one did is unknown without its record."""

MEETINGS = (
    names.JOIN_RANKS, names.FIRST_STEP, names.STEP, names.EXCHANGE, names.WAIT_FOR_PEERS, names.WIRE, names.AGREE,
    names.PUSH, names.PULL, names.LEAVE_SERVERS,
)  # fmt: skip
"""Collectives: without one member it is not known for whom the others waited."""

STEPS = (
    "allocate, localise and start * container", "allocate and launch * container", "localise and start * container",
    "launch * container", "AM asks for * container", "AM launches * container",
)  # fmt: skip
"""What is between a container's request and its process, as far as not both daemons tell it."""

START = ("SparkSubmit JVM starts", "wait for spark-submit", "wait for parent process", "wait for the application")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of source.

    Attributes:
        files: globs below the bundle; a star does not stop at a slash.
        tells: the layers whose time it tells.
        unknown: what is unknown without it, in words.
        decides: whether the breakdown depends on it.
        hides: names of spans, as in `fnmatch`.
    """

    name: str
    files: tuple[str, ...]
    tells: tuple[str, ...]
    unknown: str
    decides: bool = False
    hides: tuple[str, ...] = ()


_PYTHON = ("launcher", "feed", "hdfs", "tensorflow", "channel", "user")

DRIVER_SPANS = Kind(
    "spans of the driver", ("spans/driver/*",), ("yarn", "spark", *_PYTHON), "what its Python did and waited for", True,
    (*START, *WAITS, "AM runs the driver", "AM serves the driver", "wait for executors", *IN_TASKS, names.PARENT,
     "parent Python exits", names.DRIVER, "driver Python exits, JVM stops"),
)  # fmt: skip
RANK_SPANS = Kind(
    "spans of a rank", ("spans/rank-*",), ("yarn", "spark", *_PYTHON),
    "what it did, and for how long others waited for it", True, (*IN_TASKS, *WAITS, *MEETINGS, "trainer process",
     names.TRAINER),
)  # fmt: skip
WORKER_SPANS = Kind(
    "spans of Python workers", ("spans/*",), ("spark", *_PYTHON), "what Spark's Python did in this executor", True,
    (*IN_TASKS, *WAITS, "Python worker"),
)  # fmt: skip
DRIVER_LOG = Kind(
    "driver log", (files.DRIVER_STDERR,), ("yarn", "spark", *_PYTHON),
    "submission, waits for YARN and for executors, jobs and their tasks", True,
    (*START, *WAITS, *IN_TASKS, names.SPARK_CONTEXT, names.SPARK_SESSION, names.SPARK_CONTEXT_STOP,
     "driver Python exits, JVM stops", "* registers", "AM serves the driver", names.TFPARALLEL_RUN),
)  # fmt: skip
NATIVE_LOG = Kind("log of the parent process", (), (), "what ranks wrote to it; no figure uses it")
DRIVER_OUTPUT = Kind("driver output", (files.DRIVER_STDOUT,), (), "what the job printed; no figure uses it")
DRIVER_JVM = Kind(
    "driver JVM log", (files.DRIVER_JVM_LOG,), ("spark",), "when spark-submit's JVM began and exited", True,
    (*START, "driver Python exits, JVM stops"),
)  # fmt: skip
MASTER_LOG = Kind(
    "ApplicationMaster log", (), ("yarn", "spark", *_PYTHON),
    "which executor is which container, and when it asked for them", True,
    (*WAITS, *IN_TASKS, "AM *", "wait for executors", names.FEED_JOB),
)  # fmt: skip
EXECUTOR_LOG = Kind(
    "executor log", (f"{files.CONTAINER_LOGS}/*/stderr",), ("spark", *_PYTHON),
    "when it started, and when its tasks began and ended", True, (*IN_TASKS, *WAITS, "executor *"),
)  # fmt: skip
CONTAINER_JVM = Kind(
    "container JVM log", (f"{files.CONTAINER_LOGS}/*/jvm.log",), (), "when its JVM began, but for its first log line"
)
CONTAINER_FILES = Kind(
    "other files of containers", (f"{files.CONTAINER_LOGS}/*",), (), "what it printed, and what YARN wrote of its start"
)
RM_LOG = Kind(
    "ResourceManager log", (f"{files.DAEMON_LOGS}/resourcemanager.log",), ("yarn", "spark"),
    "YARN's steps, but for the times of its REST record", True,
    (*STEPS, "allocate * container", "hand out * container", "register application", "AM registers",
     "AM serves the driver", "wait for the ApplicationMaster"),
)  # fmt: skip
NM_LOG = Kind(
    "NodeManager log", (f"{files.DAEMON_LOGS}/nodemanager-*.log",), ("yarn", "spark"),
    "when its containers were launched, localised and started", True, (*STEPS, "* launch script"),
)  # fmt: skip
AUDIT_LOG = Kind(
    "NameNode audit log", (f"{files.DAEMON_LOGS}/namenode-audit.log",), ("hdfs",),
    "the ends of staging and of the event log, the NameNode's operations, and the first touch of the data",
)  # fmt: skip
NAMENODE_LOG = Kind(
    "NameNode log",
    (f"{files.DAEMON_LOGS}/namenode.log",),
    ("hdfs",),
    "closes of files that HDFS did not accept at once",
)
TRACE_LOG = Kind(
    "DataNode client trace", (f"{files.DAEMON_LOGS}/datanode-*-clienttrace.log",), ("hdfs",),
    "how much of Spark's reads is HDFS's",
)  # fmt: skip
DAEMON_LOGS = Kind("other daemons' logs", (f"{files.DAEMON_LOGS}/*",), (), "why a daemon failed; no figure uses it")
EVENT_LOG = Kind("Spark event log", (files.EVENT_LOG,), (), "Spark's own metrics, and the addresses of its network")
RM_RECORD = Kind(
    "ResourceManager record",
    (files.RM_APPLICATION, files.RM_ATTEMPTS),
    (),
    "how YARN says that it ended, and what it charged",
)
MARKERS = Kind("done-markers", (files.MARKERS,), (), "steps, samples, losses and accuracy of the ranks", True)
INPUT_RECORDS = Kind(
    "records of the input",
    (files.BLOCKS, files.CHECKSUMS),
    (),
    "whether what was read is what was stored, and where it lay",
)
HOSTS = Kind("addresses", (files.HOSTS, files.CLIENT_INTERFACES), (), "by which network Spark and HDFS went")
COUNTERS = Kind("transport counters of a rank", (), (), "by what its exchange went", True)
INVENTORY = Kind("inventory", (files.COLLECTED,), (), "what was collected, and what could not be had")
BEFORE = Kind(
    "measurements before the run", (files.SPAN_COST, files.NOISE, files.PAGE_CACHE), (),
    "what recording cost, the machine's noise, or what was in the page cache",
)  # fmt: skip
RESOURCES = Kind("resource samples", (files.RESOURCES,), (), "CPU, memory and disk use")
MEMORY = Kind("container metrics", (files.NM_CONTAINERS,), (), "the peak of an executor's memory")
DAEMONS = Kind("list of daemons", (files.DAEMONS,), (), "which daemons there were, and whether one died")
CODE = Kind("own code", (files.SCRIPT, files.MODEL), (), "what was run, beyond its sha256")
ESSENTIAL = Kind(
    "window and job", (files.WINDOW, files.JOB), (), "what was run, and when: nothing can be computed", True
)
GENERATION = Kind("generation of the data set", ("logs/generation/*",), (), "how the data set was made before the run")

KINDS = (
    DRIVER_SPANS, RANK_SPANS, WORKER_SPANS, DRIVER_LOG, NATIVE_LOG, DRIVER_OUTPUT, DRIVER_JVM, MASTER_LOG, EXECUTOR_LOG,
    CONTAINER_JVM, CONTAINER_FILES, RM_LOG, NM_LOG, AUDIT_LOG, NAMENODE_LOG, TRACE_LOG, DAEMON_LOGS, EVENT_LOG,
    RM_RECORD, MARKERS, INPUT_RECORDS, HOSTS, COUNTERS, INVENTORY, BEFORE, RESOURCES, MEMORY, DAEMONS, CODE, ESSENTIAL,
    GENERATION,
)  # fmt: skip
"""In the order in which a file is looked up: the first with a glob that fits."""


def kind_of(name: str) -> Kind | None:
    """The kind of a file of a bundle; None where the table has none."""
    return next((kind for kind in KINDS if any(fnmatchcase(name, glob) for glob in kind.files)), None)
