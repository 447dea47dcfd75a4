"""THE table of how well the time of a span is known: its name and layer to its degree of evidence. Pure.

    measured        begin and end of one call or of one phase were seen
    between marks   two marks of different things; what lies inside was not seen. So is the whole of a process, of a
                    task or of a thread: its own time is what nothing inside it has a name for
    named wait      a configured poll, heartbeat or sleep; `is_read` says where its length is from
    unexplained, unattributed
                    as attribution found it

A span without a row, as of another version, counts as between marks: it is not known to be better. Names that several
layers have are the same call on behalf of each: a local file's time is the reader's, a file's in HDFS is HDFS's.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from dlobd.schema import Segment, Span
from dlobd.tracing import names

Degree = Literal["measured", "between marks", "named wait", "unexplained", "unattributed"]
Own = Literal["measured", "between marks"]

MEASURED: dict[str, tuple[str, ...]] = {
    "client": (names.INSTALL_HOOKS, "start spark-submit", "start parent process", "wait for spark-submit",
               "wait for parent process"),
    "yarn": (
        # both ends by the same log, of one RPC or of one state of one thing
        "submit RPC", "* RPC", "accept application", "hand out * container", "localise * container",
        "start * container",
    ),
    "spark": (
        names.IMPORT_PYSPARK, "import pyspark.worker", names.SPARK_CONTEXT, names.SPARK_SESSION,
        names.SPARK_CONTEXT_STOP, names.INPUT_SPLITS, names.UNPICKLE_FUNCTION, names.TFCLUSTER_TRAIN, names.FEED_JOB,
        names.BARRIER_JOB, names.READ_BLOCK, names.READ_ROWS, names.WAIT_FOR_TRAINER, "JVM: *", "register with Master",
        # both ends of one message
        "report task of *",
        # a JVM's own words, at both ends of one call: see lanes/jvm.py
        "create JVM", "configure log4j", "executor names its process", "AM registers signal handlers", "GC pause",
        "prepare settings", "create SparkEnv", "create task scheduler", "create proxy of ResourceManager",
        "open staging", "create launch context", "AM logs in", "AM opens staging",
        "AM creates proxy of ResourceManager", "AM connects to driver", "AM prepares launch context",
        "AM creates allocator", "AM prepares container requests", "executor logs in", "executor fetches settings",
        "executor creates SparkEnv", "executor asks to be registered", "submit stage", "offer task", "send task",
        "start task thread", "deserialise task", "read broadcast", "deserialise function", "open input",
        "launch Python daemon",
    ),
    "launcher": (
        names.IMPORT_TENSORFLOWONSPARK, names.TFCLUSTER_RUN, names.TFCLUSTER_INFERENCE, names.TFCLUSTER_SHUTDOWN,
        names.TFPARALLEL_RUN, names.TFMANAGER_START, names.CONNECT_TO_TFMANAGER, names.CONNECT_TO_QUEUE,
        names.REGISTER_RESERVATION, names.AWAIT_RESERVATIONS, names.SLEEP, names.AWAIT_TRAINERS, names.FORK_TRAINER,
        names.IMPORT_DISTRIBUTOR, names.MIRRORED_STRATEGY_RUNNER, names.START_CHILD, names.ALL_GATHER_ADDRESSES,
        names.TELL_PLACE, names.AWAIT_PLACE, names.START_RANKS, names.TELL_PLACES, names.WAIT_FOR_RANKS,
        names.TELL_DRIVER, "last notice heard",
    ),
    "feed": (
        names.PUT, names.GET, names.AWAIT_BLOCK, names.PUT_RESULTS, names.TERMINATE_FEED,
        # the rest of one get or put, once its block or room for it is there
        "take block", "write block",
    ),
    "hdfs": (
        f"{names.READ} *", f"{names.WRITE} *", names.STREAM, names.OPEN, names.LIST_DIRECTORY, "* NameNode",
        "* DataNode", "upload to staging", "stop event log",
    ),
    "tensorflow": (
        names.IMPORT_TENSORFLOW, names.JOIN_RANKS, names.BUILD, names.BUILD_PIPELINE, names.CHECK_RECORDS, names.DECODE,
        names.AUGMENT, names.NEXT_BATCH, names.FIRST_STEP, names.STEP, names.FORWARD_AND_BACKWARD, names.APPLY,
        names.AGREE, names.CHECKPOINT, names.SAVE_MODEL, names.EVALUATE, names.LOAD_MODEL, names.PREDICT,
        f"{names.READ} *", f"{names.WRITE} *",
    ),
    "channel": (
        names.EXCHANGE, names.PACK, names.WAIT_FOR_PEERS, names.WIRE, names.UNPACK, names.PUSH, names.PULL,
        names.LEAVE_SERVERS, names.RECEIVE, names.SUM, names.SEND, names.AGREE,
    ),
}  # fmt: skip
"""Layer to its names; a star stands for any words. `BETWEEN_MARKS` goes first."""

BETWEEN_MARKS: dict[str, tuple[str, ...]] = {
    "client": ("application",),
    "yarn": (
        "allocate * container", "launch * container", "prepare * container", "allocate and launch * container",
        "localise and start * container", "allocate, localise and start * container", "register application",
        "unregister application", "notice lost attempt", "notice lost executor",
    ),
    "spark": (
        names.DRIVER, "Python worker", "task of *", "job *",
        "spark-submit script", "SparkSubmit JVM starts", "driver Python starts", "driver Python exits, JVM stops",
        "JVM process exits", "SparkEnv and UI start", "prepare submission", "wait for the application",
        "wait for the ApplicationMaster", "wait for executors", "submit job *", "wait for tasks of *",
        "* launch script", "* JVM boots", "* registers", "AM serves the driver", "AM runs the driver", "AM stops",
        "AM prepares its request", "AM asks for * container", "AM launches executor container", "end job *",
        "lost task of *", "lost attempt", "wait for another ApplicationMaster",
        "Master and Worker start executor", "wait for a job", "schedule task",
        "trainer in task", "start Python daemon", "Python worker starts",
    ),
    "launcher": (
        names.PARENT, names.START_TASK, names.FEED_TASK, names.SHUTDOWN_TASK, names.BARRIER_TASK,
        "parent Python starts", "parent Python exits", "not yet forked",
    ),
    "feed": (names.READ_AHEAD, "join queue"),
    "hdfs": (
        # their ends are records that others made of what came next
        "write staging", "close event log", "sleep before closing again",
    ),
    "tensorflow": (names.TRAINER, names.USER_CODE, "trainer process", "trainer process exits"),
    "user": (names.USER_CODE,),
}  # fmt: skip

WAITS: dict[str, bool] = {
    "NodeManager heartbeat": False,
    "ApplicationMaster asks while containers are missing": True,
    "NodeManager heartbeat, by the driver's settings": True,
    "ApplicationMaster heartbeat": False,
    "Spark's application report poll": False,
    "Spark's application report poll, between its last two calls": True,
    "Spark's wait for registered executors": False,
    "TensorFlowOnSpark reservation poll": False,
    "reservation poll of the compatibility layer": True,
    "TensorFlowOnSpark feed join poll": False,
    "TensorFlowOnSpark TFCluster.shutdown poll": True,
    "Spark's barrier poll": False,
    "tf.data decodes and hands over a batch": False,
    "TensorFlowOnSpark DataFeed.terminate": False,
    "TFCluster.shutdown(grace_secs)": True,
    "done-marker poll": True,
    "HDFS client's close retry": False,
    "HDFS client's close retry, until its next try": True,
}
"""Beginning of a cause -> whether the length of its period was read from the run: who slept wrote down for how long, or
both ends of the sleep were seen. Else it is the default of the setting or of the code that the cause names. The longest
beginning counts."""


def degree(segment: Segment) -> Degree:
    """How well a piece of the wall is known. A span whose end was not seen is between marks, whatever its name."""
    if segment.span is None:
        return "unattributed"
    if segment.kind == "cause":
        return "named wait"
    if segment.kind == "unexplained":
        return "unexplained"
    return of_span(segment.span, segment.layer)


def of_span(span: Span, layer: str = "") -> Own:
    """How well the own time of a span is known, as time of its layer or of another one."""
    return "between marks" if span.truncated else own(layer or span.layer, span.name) or "between marks"


@cache
def own(layer: str, name: str) -> Own | None:
    """The degree of a span's own time; None where the table has no row."""
    if _has(BETWEEN_MARKS, layer, name):
        return "between marks"
    return "measured" if _has(MEASURED, layer, name) else None


@cache
def is_read(cause: str) -> bool | None:
    """Whether the length of a named wait was read from the run, not a default; None where the table has no row."""
    begins = [begin for begin in WAITS if cause.startswith(begin)]
    return WAITS[max(begins, key=len)] if begins else None


def _has(table: dict[str, tuple[str, ...]], layer: str, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in table.get(layer, ()))
