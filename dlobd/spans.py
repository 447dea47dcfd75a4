"""Registries of span kinds (`SPANS`), of kinds of instants and events (`INSTANTS`), and of named waits (`CAUSES`).

A row contains all properties of its kind, such as name, layer, quality of the evidence, wait, findings that it
supports, and the next step that an event enables. Recorders, lanes, attribution, findings and reports refer to the row.

A kind is a `str`, its name, because recorded files and run.json contain names. Names are part of the stored format: the
meaning of a name never changes. A name with `{}` is a template; the variable part is the span's `detail`. Kinds of two
layers may have the same name: compare kinds by `is`.

Standard library only, and fast to import: the cluster's Python imports this module before it records its first span.
"""

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Literal, Self, TypedDict

from dlobd.layers import CHANNEL, CLIENT, FEED, HDFS, LAUNCHER, SPARK, TENSORFLOW, USER, YARN

OwnQuality = Literal["measured", "between marks"]
MEASURED: OwnQuality = "measured"  # begin and end of one call or phase were observed
BETWEEN_MARKS: OwnQuality = "between marks"  # two log marks of different events; nothing between them was observed


EvidenceFile = Enum(
    "EvidenceFile", "DRIVER_SPANS RANK_SPANS WORKER_SPANS DRIVER_LOG DRIVER_JVM_LOG AM_LOG EXECUTOR_LOG RM_LOG NM_LOG"
)
"""Evidence without which a span's time may belong to another layer."""

DRIVER_SPANS, RANK_SPANS, WORKER_SPANS, DRIVER_LOG, DRIVER_JVM_LOG, AM_LOG, EXECUTOR_LOG, RM_LOG, NM_LOG = EvidenceFile
_PYTHON = (DRIVER_SPANS, RANK_SPANS, WORKER_SPANS, DRIVER_LOG, AM_LOG, EXECUTOR_LOG)
"""Evidence of the work of Python processes, and of calls that wait for another Python process."""
_CONTAINER = (RM_LOG, NM_LOG)
"""Evidence of the steps from a container's request to its process; each daemon logs a part of these steps."""
_SUBMIT = (DRIVER_SPANS, DRIVER_LOG, DRIVER_JVM_LOG)

# ---- roles that a recorded wait waits for: a process cannot name the lane of another process

WAIT_FEEDER = "@feeder"  # the process that feeds this trainer: its executor, or its parent
WAIT_READER = "@reader"  # the threads that read for this trainer
WAIT_TRAINER = "@trainer"  # the trainer that this executor started last
WAIT_TRAINERS = "@trainers"  # the trainer that finishes last
WAIT_LAST_RESERVATION = "@last-reservation"  # the node with the last reservation

# ---- collectives: with `call`, the number of the collective, the members form one group

STEP_RENDEZVOUS = "step"  # exchange inside the step: the step itself is the collective
EXCHANGE_RENDEZVOUS = "exchange"  # exchange outside the step
PEERS_RENDEZVOUS = "peers"  # barrier until all ranks have packed

TORCHRUN_ROLE = "torchrun"
"""Role of the processes that run torchrun's agent, which starts training processes."""

# ---- purposes of files: the variable part of `read {}` and `write {}`

INPUT = "input"
TEST_SET = "test set"
DATA_SET = "data set"
MODEL = "model"
MODEL_FILE = "model file"  # the source of the user's own model
DONE_MARKER = "done-marker"


class _Row(str):
    """A row of a registry. A copy or unpickled row is the row itself, so that kinds can be compared by `is`."""

    codes = ""  # codes of the findings that the row supports

    @property
    def findings(self) -> list[str]:
        """Codes of the findings that the row supports."""
        return self.codes.split()

    def __new__(cls, name: str, *_: object, **__: object) -> Self:
        return super().__new__(cls, name)

    def __reduce__(self) -> tuple[object, ...]:
        if isinstance(self, SpanKind):
            return _registered, ("SPANS", (self.layer, str(self)))
        return _registered, ("CAUSES" if isinstance(self, Cause) else "INSTANTS", str(self))


JsonMap = dict[str, Any]
"""A JSON object, such as the attributes of a span; the readers of `dlobd.evidence` check the types of its members."""


Fields = Mapping[str, object]


class Details(TypedDict, total=False):
    """Optional fields of a `Span`. A recorded wait has only the fields up to `cause_period_ns`."""

    waits_for: tuple[str, ...]
    released_ns: int | None
    cause: str
    cause_period_ns: int
    cause_kind: "Cause | None"
    detail: str
    truncated: bool
    attrs: JsonMap


class Cause(_Row):
    """A heartbeat, poll or sleep that explains the end of a wait, up to its period.

    Its value is the beginning of the text in files and reports; `text()` adds the details in parentheses."""

    def __init__(self, name: str, period_is_read: bool, details: str = "", period_ns: int = 0, codes: str = "") -> None:
        self.period_is_read = period_is_read  # True: read from the run; False: default of the setting or code
        self.details, self.period_ns, self.codes = details, period_ns, codes

    def text(self, details: str = "") -> str:
        """Return the cause as files and reports show it."""
        details = details or self.details
        return f"{self} ({details})" if details else str(self)

    def wait(self, period_ns: int = 0, details: str = "") -> dict[str, object]:
        """Return the fields of a recorded wait. A period of 0 stands for the default period."""
        return {"cause": self.text(details), "cause_period_ns": period_ns or self.period_ns}

    def fields(self, period_ns: int = 0) -> Details:
        """Return the fields of a `Span`; see `wait`."""
        return {"cause": self.text(), "cause_period_ns": period_ns or self.period_ns, "cause_kind": self}


_S, _MS = 10**9, 10**6

NM_HEARTBEAT = Cause("NodeManager heartbeat", False, "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms, 1 s", _S)
NM_HEARTBEAT_SET = Cause("NodeManager heartbeat, by the driver's settings", True)
AM_HEARTBEAT = Cause(
    "ApplicationMaster heartbeat",
    False,
    "spark.yarn.scheduler.initial-allocation.interval, 0.2 s, doubling to 3 s",
    3 * _S,
)
AM_HEARTBEAT_READ = Cause("ApplicationMaster asks while containers are missing", True, "between two calls")
REPORT_POLL = Cause("Spark's application report poll", False, "spark.yarn.report.interval, 1 s", _S)
REPORT_POLL_READ = Cause("Spark's application report poll, between its last two calls", True)
EXECUTORS_POLL = Cause("Spark's wait for registered executors", False, "0.1 s poll", 100 * _MS)
TFOS_RESERVATION_POLL = Cause("TensorFlowOnSpark reservation poll", False, "sleep 1 s", _S, codes="polls")
COMPAT_RESERVATION_POLL = Cause("reservation poll of the compatibility layer", True, "0.05 s")
RESERVATION_TIMEOUT = Cause("TensorFlowOnSpark waits for nodes that never register", True, "reservation_timeout")
EXECUTORS_TIMEOUT = Cause(
    "Spark waits for executors that never register", True, "spark.scheduler.maxRegisteredResourcesWaitingTime"
)
FEED_JOIN_POLL = Cause("TensorFlowOnSpark feed join poll", False, "sleep 1 s", _S, codes="polls")
TFCLUSTER_SHUTDOWN_POLL = Cause("TensorFlowOnSpark TFCluster.shutdown poll", True, codes="polls")
TFCLUSTER_GRACE_SECS = Cause("TFCluster.shutdown(grace_secs)", True, codes="polls")
TERMINATE_POLL = Cause("TensorFlowOnSpark DataFeed.terminate", False, "5 s without an item", 5 * _S, codes="polls")
BARRIER_POLL = Cause(
    "Spark's barrier poll", False, "BarrierTaskContext sleeps 1 s before it looks for the answer", _S, codes="polls"
)
TORCHRUN_POLL = Cause("torchrun's poll of its processes", True, "monitor_interval")
TF_DATA = Cause(
    "tf.data decodes and hands over a batch, in threads of its own",
    False,
    "at most 10 ms a batch",
    10 * _MS,
    codes="input-pipeline",
)
DONE_MARKER_POLL = Cause("done-marker poll", True, "2 s, doubling to 10 s")
END_OF_STREAM = Cause("the script waits for a stream", True, "until the stream or the timeout of the call ends")
CLOSE_RETRY = Cause(
    "HDFS client's close retry",
    False,
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms, 0.4 s",
    400 * _MS,
    codes="close-retry",
)
CLOSE_RETRY_READ = Cause("HDFS client's close retry, until its next try", True, "0.4 s, doubling", codes="close-retry")

CAUSES: dict[str, Cause] = {row: row for row in [*globals().values()] if type(row) is Cause}


class SpanKind(_Row):
    """Kind of span. Recorders add the wait of the kind to every span."""

    def __init__(
        self,
        name: str,
        layer: str,
        quality: OwnQuality = MEASURED,  # of the evidence for the span's own time
        hidden_by: tuple[EvidenceFile, ...] = (),  # without this evidence, the time may belong to another layer
        codes: str = "",
        waits_for: str = "",  # role that every recorded span waits for
        cause: Cause | None = None,
        rendezvous: str = "",  # kind of the collective that every recorded span is a member of
        role: str = "",  # of the process that spends the time, if it is not the process of the lane
        pauses_training: bool = False,  # work of the chief while the other ranks wait for the chief
    ) -> None:
        self.layer, self.quality, self.hidden_by, self.codes = layer, quality, hidden_by, codes
        self.cause, self.role, self.pauses_training = cause, role, pauses_training
        self.wait: dict[str, object] = {}
        if rendezvous:
            self.wait["rendezvous"] = rendezvous
        if waits_for:
            self.wait["waits_for"] = [waits_for]
        if cause is not None:
            self.wait |= cause.wait()

    def text(self, detail: str = "") -> str:
        """Return the name of a span: the template with its variable part."""
        return self.replace("{}", detail)


AM_ROLE = "application-master"


def _am(name: str, quality: OwnQuality = MEASURED, *hidden_by: EvidenceFile, codes: str = "") -> SpanKind:
    """Return a kind of span of an ApplicationMaster's process. The span may lie in the lane of an executor."""
    return SpanKind(name, SPARK, quality, hidden_by=(AM_LOG, *hidden_by), role=AM_ROLE, codes=codes)


def _executor(name: str, quality: OwnQuality = MEASURED, *hidden_by: EvidenceFile, codes: str = "") -> SpanKind:
    return SpanKind(name, SPARK, quality, hidden_by=(EXECUTOR_LOG, *hidden_by), codes=codes)


_JVM = "jvm-startup"


# ---- the client, spark-submit and the driver

APPLICATION = SpanKind("application", CLIENT, BETWEEN_MARKS)  # wait of a run that the user submitted by hand
START_SPARK_SUBMIT = SpanKind("start spark-submit", CLIENT)
WAIT_FOR_SPARK_SUBMIT = SpanKind("wait for spark-submit", CLIENT, hidden_by=_SUBMIT)
START_PARENT = SpanKind("start parent process", CLIENT)
WAIT_FOR_PARENT = SpanKind("wait for parent process", CLIENT, hidden_by=_SUBMIT)
INSTALL_HOOKS = SpanKind("install hooks", CLIENT)  # before the user's own script

SPARK_SUBMIT_SCRIPT = SpanKind("spark-submit script", SPARK, BETWEEN_MARKS)
SUBMIT_JVM_STARTS = SpanKind("SparkSubmit JVM starts", SPARK, BETWEEN_MARKS, _SUBMIT, codes=_JVM)
WAIT_FOR_APPLICATION = SpanKind("wait for the application", SPARK, BETWEEN_MARKS, _SUBMIT)
DRIVER_PYTHON_STARTS = SpanKind("driver Python starts", SPARK, BETWEEN_MARKS)
DRIVER_PYTHON_EXITS = SpanKind("driver Python exits, JVM stops", SPARK, BETWEEN_MARKS, _SUBMIT)
JVM_PROCESS_EXITS = SpanKind("JVM process exits", SPARK, BETWEEN_MARKS)

DRIVER = SpanKind("driver", SPARK, BETWEEN_MARKS, (DRIVER_SPANS,))  # the driver's Python process
PARENT = SpanKind("parent", LAUNCHER, BETWEEN_MARKS, (DRIVER_SPANS,))  # the process that starts native ranks
PARENT_PYTHON_STARTS = SpanKind("parent Python starts", LAUNCHER, BETWEEN_MARKS)
PARENT_PYTHON_EXITS = SpanKind("parent Python exits", LAUNCHER, BETWEEN_MARKS, (DRIVER_SPANS,))
USER_CODE = SpanKind("user code", USER, BETWEEN_MARKS)  # the user's script or function
USER_IMPORT = SpanKind("import {}", USER)  # by the user's function, while Python unpickles it
USER_MAIN = SpanKind("user code", TENSORFLOW, BETWEEN_MARKS)  # the user's main function on a node of TFCluster
MARKED = SpanKind("span {}", USER, BETWEEN_MARKS)  # dlobd.span() in the user's code
MARKED_MAIN = SpanKind("span {}", TENSORFLOW, BETWEEN_MARKS)  # the same in the main function of a node
MARKED_STEP = SpanKind("step", USER, BETWEEN_MARKS)  # dlobd.step() outside of such a main function
IMPORT_PYSPARK = SpanKind("import pyspark", SPARK)
IMPORT_PYSPARK_WORKER = SpanKind("import pyspark.worker", SPARK)
SPARK_CONTEXT = SpanKind("SparkContext", SPARK, hidden_by=(DRIVER_LOG,))  # its constructor
SPARK_SESSION = SpanKind("SparkSession", SPARK, hidden_by=(DRIVER_LOG,))  # getOrCreate
SPARK_CONTEXT_STOP = SpanKind("SparkContext.stop", SPARK, hidden_by=(DRIVER_LOG,))
INPUT_SPLITS = SpanKind("input splits", SPARK, hidden_by=_PYTHON)  # creation of the RDD of the input files
UNPICKLE_FUNCTION = SpanKind("unpickle function", SPARK)
# parts of the user code in a Python worker: sums of a slice, one after the other; see timeline/executor.py
READ_FROM_JVM = SpanKind("read rows from JVM", SPARK, BETWEEN_MARKS)  # and wait for them
SERIALISE_ROWS = SpanKind("serialise and deserialise rows", SPARK, BETWEEN_MARKS)
PYSPARK_LOOP = SpanKind("PySpark's loop", SPARK, BETWEEN_MARKS)  # around a function of batches
WRITE_TO_JVM = SpanKind("write rows to JVM", SPARK, BETWEEN_MARKS)
JVM_CALL = SpanKind("JVM: {}", SPARK, hidden_by=_PYTHON)  # a long call of py4j
# the variable part is the method of the call
WAIT_FOR_STREAM = SpanKind("wait for stream: {}", SPARK, hidden_by=_PYTHON, cause=END_OF_STREAM)

SPARK_ENV_STARTS = SpanKind("SparkEnv and UI start", SPARK, BETWEEN_MARKS, codes=_JVM)
PREPARE_SUBMISSION = SpanKind("prepare submission", SPARK, BETWEEN_MARKS, codes=_JVM)
REGISTER_WITH_MASTER = SpanKind("register with Master", SPARK)
WAIT_FOR_AM = SpanKind("wait for the ApplicationMaster", SPARK, BETWEEN_MARKS, (RM_LOG,))
WAIT_FOR_EXECUTORS = SpanKind("wait for executors", SPARK, BETWEEN_MARKS, (DRIVER_SPANS, AM_LOG))
JOB = SpanKind("job {}", SPARK, BETWEEN_MARKS, _PYTHON)
SUBMIT_JOB = SpanKind("submit job {}", SPARK, BETWEEN_MARKS, (DRIVER_LOG,))
END_JOB = SpanKind("end job {}", SPARK, BETWEEN_MARKS)
WAIT_FOR_TASKS = SpanKind("wait for tasks of {}", SPARK, BETWEEN_MARKS, _PYTHON)
LOST_TASK = SpanKind("lost task of {}", SPARK, BETWEEN_MARKS, codes="lost-work")

# ---- phases of JVMs, between two lines of one log: see timeline/jvm.py

CREATE_JVM = SpanKind("create JVM", SPARK, codes=_JVM)
CONFIGURE_LOG4J = SpanKind("configure log4j", SPARK, codes=_JVM)
GC_PAUSE = SpanKind("GC pause", SPARK, codes="garbage")
PREPARE_SETTINGS = SpanKind("prepare settings", SPARK, codes=_JVM)
CREATE_SPARK_ENV = SpanKind("create SparkEnv", SPARK, codes=_JVM)
CREATE_TASK_SCHEDULER = SpanKind("create task scheduler", SPARK, codes=_JVM)
CREATE_RM_PROXY = SpanKind("create proxy of ResourceManager", SPARK, codes=_JVM)
OPEN_STAGING = SpanKind("open staging", SPARK)
CREATE_LAUNCH_CONTEXT = SpanKind("create launch context", SPARK, codes=_JVM)
AM_REGISTERS_SIGNAL_HANDLERS = _am("AM registers signal handlers", codes=_JVM)
AM_LOGS_IN = _am("AM logs in", codes=_JVM)
AM_OPENS_STAGING = _am("AM opens staging", codes=_JVM)
AM_CREATES_RM_PROXY = _am("AM creates proxy of ResourceManager", codes=_JVM)
AM_CONNECTS_TO_DRIVER = _am("AM connects to driver", codes=_JVM)
AM_PREPARES_LAUNCH_CONTEXT = _am("AM prepares launch context", codes=_JVM)
AM_CREATES_ALLOCATOR = _am("AM creates allocator", codes=_JVM)
AM_PREPARES_CONTAINER_REQUESTS = _am("AM prepares container requests", codes=_JVM)
EXECUTOR_NAMES_ITS_PROCESS = _executor("executor names its process", codes=_JVM)
EXECUTOR_LOGS_IN = _executor("executor logs in", codes=_JVM)
EXECUTOR_FETCHES_SETTINGS = _executor("executor fetches settings", codes=_JVM)
EXECUTOR_CREATES_SPARK_ENV = _executor("executor creates SparkEnv", codes=_JVM)
EXECUTOR_ASKS_TO_BE_REGISTERED = _executor("executor asks to be registered", codes=_JVM)

# ---- YARN: the application and its containers; the variable part is `AM` or `executor`

SUBMIT_RPC = SpanKind("submit RPC", YARN, codes="resource-manager")
RPC = SpanKind("{} RPC", YARN, codes="resource-manager")
ACCEPT_APPLICATION = SpanKind("accept application", YARN, codes="queue")
REGISTER_APPLICATION = SpanKind("register application", YARN, BETWEEN_MARKS, (RM_LOG,), "resource-manager")
UNREGISTER_APPLICATION = SpanKind("unregister application", YARN, BETWEEN_MARKS, codes="resource-manager")
ALLOCATE_CONTAINER = SpanKind("allocate {} container", YARN, BETWEEN_MARKS, (RM_LOG,), "queue")
HAND_OUT_CONTAINER = SpanKind("hand out {} container", YARN, hidden_by=(RM_LOG,), codes="queue")
ALLOCATE_AND_LAUNCH_CONTAINER = SpanKind("allocate and launch {} container", YARN, BETWEEN_MARKS, _CONTAINER, "queue")
ALLOCATE_TO_START_CONTAINER = SpanKind(
    "allocate, localise and start {} container", YARN, BETWEEN_MARKS, _CONTAINER, "queue"
)
LAUNCH_AM_CONTAINER = SpanKind("launch AM container", YARN, BETWEEN_MARKS, _CONTAINER, "node-manager")
CALL_NODE_MANAGER = SpanKind("call NodeManager for {} container", YARN, codes="node-manager")
PREPARE_CONTAINER = SpanKind("prepare {} container", YARN, BETWEEN_MARKS, codes="node-manager")
LOCALISE_CONTAINER = SpanKind("localise {} container", YARN, codes="localisation")
START_CONTAINER = SpanKind("start {} container", YARN, codes="node-manager")
LOCALISE_AND_START_CONTAINER = SpanKind(
    "localise and start {} container", YARN, BETWEEN_MARKS, _CONTAINER, "localisation"
)
NOTICE_LOST_ATTEMPT = SpanKind("notice lost attempt", YARN, BETWEEN_MARKS, codes="lost-work")
NOTICE_LOST_EXECUTOR = SpanKind("notice lost executor", YARN, BETWEEN_MARKS, codes="lost-work")

AM_LAUNCH_SCRIPT = _am("AM launch script", BETWEEN_MARKS, NM_LOG)
AM_JVM_BOOTS = _am("AM JVM boots", BETWEEN_MARKS, codes=_JVM)
AM_REGISTERS = _am("AM registers", BETWEEN_MARKS, DRIVER_LOG, RM_LOG)
AM_SERVES_DRIVER = _am("AM serves the driver", BETWEEN_MARKS, DRIVER_SPANS, DRIVER_LOG, RM_LOG)
AM_RUNS_DRIVER = _am("AM runs the driver", BETWEEN_MARKS, DRIVER_SPANS)  # in cluster mode
AM_STOPS = _am("AM stops", BETWEEN_MARKS)
AM_PREPARES_REQUEST = _am("AM prepares its request", BETWEEN_MARKS)
AM_ASKS_FOR_CONTAINER = _am("AM asks for executor container", BETWEEN_MARKS, *_CONTAINER)
AM_LAUNCHES_CONTAINER = _am("AM launches executor container", BETWEEN_MARKS, *_CONTAINER)
LOST_ATTEMPT = SpanKind("lost attempt", SPARK, BETWEEN_MARKS, codes="lost-work")
WAIT_FOR_NEXT_AM = SpanKind("wait for another ApplicationMaster", SPARK, BETWEEN_MARKS, codes="lost-work")

# ---- an executor, its tasks and its Python workers

EXECUTOR_LAUNCH_SCRIPT = _executor("executor launch script", BETWEEN_MARKS, NM_LOG)
EXECUTOR_JVM_BOOTS = _executor("executor JVM boots", BETWEEN_MARKS, codes=_JVM)
EXECUTOR_REGISTERS = _executor("executor registers", BETWEEN_MARKS, DRIVER_LOG)
MASTER_STARTS_EXECUTOR = SpanKind("Master and Worker start executor", SPARK, BETWEEN_MARKS)
WAIT_FOR_JOB = SpanKind("wait for a job", SPARK, BETWEEN_MARKS, _PYTHON)
SCHEDULE_TASK = SpanKind("schedule task", SPARK, BETWEEN_MARKS)
SUBMIT_STAGE = SpanKind("submit stage", SPARK)
OFFER_TASK = SpanKind("offer task", SPARK)
SEND_TASK = SpanKind("send task", SPARK)
TASK = SpanKind("task of {}", SPARK, BETWEEN_MARKS, _PYTHON)
START_TASK_THREAD = SpanKind("start task thread", SPARK)
DESERIALISE_TASK = SpanKind("deserialise task", SPARK)
READ_BROADCAST = SpanKind("read broadcast", SPARK)
DESERIALISE_FUNCTION = SpanKind("deserialise function", SPARK)
OPEN_INPUT = SpanKind("open input", SPARK)
LAUNCH_PYTHON_DAEMON = SpanKind("launch Python daemon", SPARK)
START_PYTHON_DAEMON = SpanKind("start Python daemon", SPARK, BETWEEN_MARKS)
PYTHON_WORKER_STARTS = SpanKind("Python worker starts", SPARK, BETWEEN_MARKS)
PYTHON_WORKER = SpanKind("Python worker", SPARK, BETWEEN_MARKS, (WORKER_SPANS,))
TRAINER_IN_TASK = SpanKind("trainer in task", SPARK, BETWEEN_MARKS, _PYTHON)
REPORT_TASK = SpanKind("report task of {}", SPARK)  # from the sending to the receipt of a message

# ---- launchers

IMPORT_TENSORFLOWONSPARK = SpanKind("import tensorflowonspark", LAUNCHER)
IMPORT_DISTRIBUTOR = SpanKind("import spark-tensorflow-distributor", LAUNCHER)
TFCLUSTER_RUN = SpanKind("TFCluster.run", LAUNCHER, hidden_by=_PYTHON)
TFCLUSTER_TRAIN = SpanKind("TFCluster.train", SPARK, hidden_by=_PYTHON, waits_for=WAIT_TRAINERS)
TFCLUSTER_INFERENCE = SpanKind("TFCluster.inference", LAUNCHER, hidden_by=_PYTHON)
TFCLUSTER_SHUTDOWN = SpanKind("TFCluster.shutdown", LAUNCHER, hidden_by=_PYTHON)
TFPARALLEL_RUN = SpanKind("TFParallel.run", LAUNCHER, hidden_by=(DRIVER_LOG,))
TFMANAGER_START = SpanKind("TFManager.start", LAUNCHER)
CONNECT_TO_TFMANAGER = SpanKind("connect to TFManager", LAUNCHER)
CONNECT_TO_QUEUE = SpanKind("connect to queue", LAUNCHER)
REGISTER_RESERVATION = SpanKind("register reservation", LAUNCHER)  # at its end, the node is registered
AWAIT_RESERVATIONS = SpanKind("await reservations", LAUNCHER, hidden_by=_PYTHON, waits_for=WAIT_LAST_RESERVATION)
START_TASK = SpanKind("start task", LAUNCHER, BETWEEN_MARKS)  # of one executor
FEED_TASK = SpanKind("feed task", LAUNCHER, BETWEEN_MARKS, codes="feed")  # of one partition
SHUTDOWN_TASK = SpanKind("shutdown task", LAUNCHER, BETWEEN_MARKS)  # of one executor
SLEEP = SpanKind("sleep", LAUNCHER)  # sleep in third-party code; `cause` names it
FEED_JOB = SpanKind("feed job", SPARK, hidden_by=_PYTHON, waits_for=WAIT_TRAINERS)  # all partitions and epochs
AWAIT_TRAINERS = SpanKind(
    "await trainers", LAUNCHER, hidden_by=_PYTHON, waits_for=WAIT_TRAINERS, cause=DONE_MARKER_POLL
)
LAST_NOTICE_HEARD = SpanKind("last notice heard", LAUNCHER)
TELL_DRIVER = SpanKind("tell driver", LAUNCHER)  # a rank reports that it is done
FORK_TRAINER = SpanKind("fork trainer", LAUNCHER)
MIRRORED_STRATEGY_RUNNER = SpanKind("MirroredStrategyRunner", LAUNCHER)  # its constructor
BARRIER_JOB = SpanKind("barrier job", SPARK, hidden_by=_PYTHON)
BARRIER_TASK = SpanKind("barrier task", LAUNCHER, BETWEEN_MARKS)  # of one rank
START_CHILD = SpanKind("start child", LAUNCHER)  # the process of a trainer
ALL_GATHER_ADDRESSES = SpanKind(
    "all-gather addresses", LAUNCHER, hidden_by=_PYTHON, cause=BARRIER_POLL, rendezvous="all-gather addresses"
)
TELL_PLACE = SpanKind("tell child its place", LAUNCHER)
# the child waits for its rank and the addresses
AWAIT_PLACE = SpanKind("await place", LAUNCHER, hidden_by=_PYTHON, waits_for=WAIT_FEEDER)
# a task waits for its trainer
WAIT_FOR_TRAINER = SpanKind("wait for trainer", SPARK, hidden_by=_PYTHON, waits_for=WAIT_TRAINER)
START_RANKS = SpanKind("start ranks", LAUNCHER)
BARRIER = SpanKind("barrier", SPARK, hidden_by=_PYTHON, cause=BARRIER_POLL, rendezvous="barrier")  # of the script's
TORCHRUN = SpanKind("torchrun", LAUNCHER, BETWEEN_MARKS, _PYTHON)  # the command, until its processes have ended
TORCHRUN_WRAPPER_STARTS = SpanKind("wrapper of torchrun starts", LAUNCHER, BETWEEN_MARKS)  # PySpark's
TORCHRUN_STARTS = SpanKind("torchrun starts", LAUNCHER, BETWEEN_MARKS)
TORCHRUN_EXITS = SpanKind("torchrun exits", LAUNCHER, BETWEEN_MARKS)
TORCHRUN_RENDEZVOUS = SpanKind("torchrun rendezvous", LAUNCHER, hidden_by=_PYTHON, rendezvous="torchrun rendezvous")
TORCHRUN_EXIT_BARRIER = SpanKind("wait for other agents", LAUNCHER, hidden_by=_PYTHON, rendezvous="torchrun exit")
TELL_PLACES = SpanKind("tell ranks their places", LAUNCHER, hidden_by=_PYTHON)
WAIT_FOR_RANKS = SpanKind("wait for ranks", LAUNCHER, hidden_by=_PYTHON, waits_for=WAIT_TRAINERS)
NOT_YET_FORKED = SpanKind("not yet forked", LAUNCHER, BETWEEN_MARKS, _PYTHON)

# ---- the feed

READ_BLOCK = SpanKind("read block", SPARK, codes="feed")  # Spark hands over a block
READ_ROWS = SpanKind("read rows", SPARK, codes="feed")  # Spark hands over the user's own rows
PUT = SpanKind("put", FEED, codes="feed")  # into the queue or pipe
GET = SpanKind("get", FEED, hidden_by=_PYTHON, codes="feed", waits_for=WAIT_FEEDER)  # out of the queue or pipe
TAKE_BLOCK = SpanKind("take block", FEED, codes="feed")  # the rest of a get after its block has arrived
WRITE_BLOCK = SpanKind("write block", FEED, codes="feed")  # the rest of a put after the queue has space
READ_AHEAD = SpanKind("read ahead", FEED, BETWEEN_MARKS, codes="feed")  # a thread gets blocks in advance
AWAIT_BLOCK = SpanKind("await block", FEED, hidden_by=_PYTHON, codes="feed", waits_for=WAIT_READER)
JOIN_QUEUE = SpanKind("join queue", FEED, BETWEEN_MARKS, codes="feed")
PUT_RESULTS = SpanKind("put results", FEED, codes="feed")  # of an inference
TERMINATE_FEED = SpanKind("terminate feed", FEED, codes="feed", cause=TERMINATE_POLL)

# ---- a trainer

_RANK = (RANK_SPANS,)
_EVALUATION = "evaluations"
_SHORT = "short-steps"
_EXCHANGE = "exchange short-steps"
TRAINER_PROCESS = SpanKind("trainer process", TENSORFLOW, BETWEEN_MARKS, _RANK)
TRAINER_PROCESS_EXITS = SpanKind("trainer process exits", TENSORFLOW, BETWEEN_MARKS)
TRAINER = SpanKind("trainer", TENSORFLOW, BETWEEN_MARKS, _RANK)  # the trainer's main function
IMPORT_TENSORFLOW = SpanKind("import tensorflow", TENSORFLOW, codes="cold-start")
IMPORT_TORCH = SpanKind("import torch", TENSORFLOW)
IMPORT_XGBOOST = SpanKind("import xgboost", TENSORFLOW)
JOIN_RANKS = SpanKind("join ranks", TENSORFLOW, hidden_by=_RANK, rendezvous="join ranks")
BUILD = SpanKind("build", TENSORFLOW)  # model, optimiser, step
BUILD_PIPELINE = SpanKind("build pipeline", TENSORFLOW)
BUILD_DMATRIX = SpanKind("build DMatrix", TENSORFLOW)  # of XGBoost, from the rows of a partition
CHECK_RECORDS = SpanKind("check records", TENSORFLOW, codes="input-pipeline")
DECODE = SpanKind("decode", TENSORFLOW, codes="evaluations input-pipeline")  # a block that was fed
AUGMENT = SpanKind("augment", TENSORFLOW, codes="input-pipeline")  # only with input "feed"; else in tf.data's threads
NEXT_BATCH = SpanKind(
    "next batch", TENSORFLOW, codes="input-pipeline", waits_for=WAIT_READER, cause=TF_DATA
)  # out of tf.data
FIRST_STEP = SpanKind("first step", TENSORFLOW, hidden_by=_RANK)  # includes TensorFlow's tracing and compilation
# if the exchange runs outside the step, a step contains forward and backward, exchange and apply
STEP = SpanKind("step", TENSORFLOW, hidden_by=_RANK, codes=_SHORT)
# in the user's main function: an outermost call of a tf.function, which `evidence.own_steps` may turn into a step
CALL = SpanKind("call of {}", TENSORFLOW)
INPUT_WAIT = SpanKind("input wait", TENSORFLOW)  # in the user's main function: the next element of tf.data
FORWARD_AND_BACKWARD = SpanKind("forward and backward", TENSORFLOW, codes=_SHORT)
# an exchange of dlobd contains the next four kinds
EXCHANGE = SpanKind("exchange", CHANNEL, hidden_by=_RANK, codes=_EXCHANGE)
PACK = SpanKind("pack", CHANNEL, codes=_EXCHANGE)  # copies tensors into send buffers
WAIT_FOR_PEERS = SpanKind("wait for peers", CHANNEL, hidden_by=_RANK, codes=_EXCHANGE, rendezvous=PEERS_RENDEZVOUS)
WIRE = SpanKind("wire", CHANNEL, hidden_by=_RANK, codes=_EXCHANGE)  # the collective
UNPACK = SpanKind("unpack", CHANNEL, codes=_EXCHANGE)  # copies the averaged gradients into tensors
PUSH = SpanKind("push", CHANNEL, hidden_by=_RANK, codes=_EXCHANGE)  # to one asynchronous parameter server
PULL = SpanKind("pull", CHANNEL, hidden_by=_RANK, codes=_EXCHANGE)
LEAVE_SERVERS = SpanKind("leave the servers", CHANNEL, hidden_by=_RANK, rendezvous="leave the servers")
RECEIVE = SpanKind("receive", CHANNEL, codes="exchange")  # a parameter server receives from one worker
SUM = SpanKind("sum", CHANNEL, codes="exchange")
SEND = SpanKind("send", CHANNEL, codes="exchange")
APPLY = SpanKind("apply", TENSORFLOW, codes=_SHORT)
AGREE = SpanKind("agree", TENSORFLOW, hidden_by=_RANK, codes=_SHORT, rendezvous="agree")  # vote on the end of training
AGREE_OUTSIDE = SpanKind("agree", CHANNEL, hidden_by=_RANK, codes=_SHORT, rendezvous="agree")  # by dlobd's exchange
CHECKPOINT = SpanKind("checkpoint", TENSORFLOW, pauses_training=True)
SAVE_MODEL = SpanKind("save model", TENSORFLOW, pauses_training=True)
EVALUATE = SpanKind("evaluate", TENSORFLOW, codes=_EVALUATION, pauses_training=True)
LOAD_MODEL = SpanKind("load model", TENSORFLOW)
PREDICT = SpanKind("predict", TENSORFLOW, codes=_EVALUATION)  # one batch of the test set

# ---- file systems: the time of a local file belongs to its reader, the time of a file in HDFS to HDFS

READ_LOCAL_FILE = SpanKind("read {}", TENSORFLOW, codes=_EVALUATION)
WRITE_LOCAL_FILE = SpanKind("write {}", TENSORFLOW)
READ_FILE = SpanKind("read {}", HDFS, codes="hdfs-data evaluations")
WRITE_FILE = SpanKind("write {}", HDFS, codes="hdfs-data evaluations")
STREAM = SpanKind("stream", HDFS, codes="hdfs-data evaluations")  # bytes that a DataNode sends
OPEN = SpanKind("open", HDFS, codes="name-node evaluations")
LIST_DIRECTORY = SpanKind("list directory", HDFS, codes="name-node evaluations")
NAMENODE_CALL = SpanKind("{} NameNode", HDFS, codes="name-node evaluations")
DATANODE_CALL = SpanKind("{} DataNode", HDFS, codes="hdfs-data evaluations")
UPLOAD_TO_STAGING = SpanKind("upload to staging", HDFS, codes="localisation evaluations")
WRITE_STAGING = SpanKind("write staging", HDFS, BETWEEN_MARKS, codes="localisation evaluations")
STOP_EVENT_LOG = SpanKind("stop event log", HDFS, codes=_EVALUATION)
CLOSE_EVENT_LOG = SpanKind("close event log", HDFS, BETWEEN_MARKS, codes=_EVALUATION)
SLEEP_BEFORE_CLOSE = SpanKind("sleep before closing again", HDFS, BETWEEN_MARKS, codes=_EVALUATION)

READ_INPUT = READ_FILE.text(INPUT)
WRITE_DONE_MARKER = WRITE_FILE.text(DONE_MARKER)
"""Span names that the layers `hdfs` and `tensorflow` share."""

SPANS: dict[tuple[str, str], SpanKind] = {
    (row.layer, row): row for row in [*globals().values()] if type(row) is SpanKind
}
"""All kinds of spans, by layer and name."""


class InstantKind(_Row):
    """Kind of instant that a process records, or of event in the anatomy of a run."""

    def __init__(self, name: str, unlocks: str = "", attributes: str = "") -> None:
        self.unlocks = unlocks  # the next step, which this event makes possible
        self.attributes = frozenset(attributes.split())  # a recorded line without one of them is damaged


# ---- recorded instants

SPARK_CONTEXT_START = InstantKind("SparkContext start", "the application can be submitted to YARN")
SPARK_CONTEXT_READY = InstantKind("SparkContext ready", attributes="application_id")
SPARK_CONTEXT_STOPPED = InstantKind("SparkContext stopped", "the driver can exit")
LAUNCHER_SHUT_DOWN = InstantKind("launcher shut down", "the application can be ended")
JOB_FAILED = InstantKind("job failed", attributes="cause")
JOB_FAILED_LINE = f"dlobd: {JOB_FAILED}: "
"""Prefix of the output line with the cause of a failure, for jobs that record no spans."""
TRAINING_LINE = "dlobd: training: "
"""Prefix of a line of the driver's stdout; the rest is JSON: the chief's last `step`, and its `loss`."""
TRAINING_FAILED = InstantKind("training failed", attributes="cause")  # the launcher's choice among all causes
NODES_MISSING = InstantKind("nodes missing", attributes="nodes registered executors")  # `nodes`: requested
PACKAGE_IMPORTED = InstantKind("package imported", attributes="package by ns own_ns")  # own: without nested imports
PYTHON_DAEMON_UP = InstantKind("python daemon up")
WORKER_FORKED = InstantKind("worker forked", attributes="pid")  # recorded by its daemon
PYTHON_SLICE = InstantKind("python slice", attributes="ns read_ns write_ns serialise_ns")  # at its end
PARTS_UNKNOWN = InstantKind("parts unknown", attributes="cause")  # of tasks in Python workers
FEED_PIPE = InstantKind("feed pipe", attributes="capacity_bytes")
FEED_EXHAUSTED = InstantKind("feed exhausted", attributes="join_poll_ns")  # and `blocks` or `items`
TORCHRUN_CALLED = InstantKind("torchrun called", attributes="pid")  # recorded by its agent: the process that waits
RANK_EXITED = InstantKind("rank exited", attributes="rank")  # recorded by its parent
RANK_DONE = InstantKind("rank is done", attributes="rank")  # recorded by the driver
RANK_FAILED = InstantKind("rank failed", attributes="cause")
DIVERGED = InstantKind("training diverged")  # the loss is infinite or NaN
TRAINER_DIED = InstantKind("trainer died", attributes="cause pid code")  # recorded by its parent
TRANSPORT = InstantKind("transport")  # transport of the exchange, reported by library and kernel
TENSORFLOW_IMPORTED = InstantKind("TensorFlow imported", "ranks can join")
RANKS_JOINED = InstantKind("TensorFlow rendezvous done", "the model can be built and the input opened")
FIRST_BATCH = InstantKind("first batch", "the first step can run")
FIRST_STEP_DONE = InstantKind("first step done", "later steps run without tracing and compilation")
EPOCH_DONE = InstantKind("epoch done", attributes="epoch loss")  # recorded by each rank; the steps' mean loss
EPOCH_EVALUATED = InstantKind("epoch evaluated", attributes="epoch samples right")  # recorded by the chief
OWN_EPOCH_DONE = InstantKind("own epoch done", attributes="epoch ns")  # in the user's main function; may have `loss`
STEPS_UNKNOWN = InstantKind("steps unknown", attributes="cause")  # the user's main function is not observed
LAST_STEP_DONE = InstantKind("last step done", "the model can be saved")
SAVED = InstantKind("saved", "the model can be evaluated")
EVALUATED = InstantKind("evaluated", "ranks can end")
DATANODE_GIVEN_UP = InstantKind("DataNode given up", attributes="address how")

# ---- events of start-up and teardown that logs show

SPARK_SUBMIT_EXEC = InstantKind("spark-submit exec", "the window begins; spark-submit's JVM can boot")
APPLICATION_SUBMITTED = InstantKind("application submitted", "the window begins; YARN can accept the application")
SUBMIT_JVM_UP = InstantKind("spark-submit JVM up", "the driver can start")
DRIVER_PYTHON_UP = InstantKind("driver Python up", "your script runs; SparkContext can be created")
SUBMITTED = InstantKind("submit RPC", "the ResourceManager can accept the application")
APPLICATION_ACCEPTED = InstantKind("application accepted", "a container can be allocated for the ApplicationMaster")
AM_ALLOCATED = InstantKind("AM container allocated", "the ApplicationMaster can be launched on a NodeManager")
AM_START_REQUESTED = InstantKind("AM start requested", "the NodeManager can localise its files")
AM_LOCALISED = InstantKind("AM localised", "the container's process can start")
AM_PROCESS_UP = InstantKind("AM process up", "the ApplicationMaster can register")
AM_REGISTERED = InstantKind("AM registered", "executors can be requested")
EXECUTOR_ALLOCATED = InstantKind("executor container allocated", "the executor can be launched on a NodeManager")
EXECUTOR_START_REQUESTED = InstantKind("executor start requested", "the NodeManager can localise its files")
EXECUTOR_LOCALISED = InstantKind("executor localised", "the executor's process can start")
EXECUTOR_PROCESS_UP = InstantKind("executor process up", "the executor can register with the driver")
EXECUTOR_REGISTERED = InstantKind("executor registered", "the driver can send tasks")
PYTHON_WORKER_UP = InstantKind("Python worker up", "the launcher can start its rendezvous with the other nodes")
LAUNCHER_RENDEZVOUS_DONE = InstantKind("launcher rendezvous done", "every trainer has the addresses of all trainers")
TRAINER_FORKED = InstantKind("trainer forked", "the trainer can import TensorFlow")
USER_MAIN_CALLED = InstantKind("your main function called", "your code runs in the trainer")
USER_MAIN_ENDED = InstantKind("your main function ended", "the launcher can shut down")
PARENT_EXEC = InstantKind("parent process exec", "the window begins; ranks can be started")
PARENT_PYTHON_UP = InstantKind("parent Python up", "the ranks' parent can be started")
RANK_PROCESS_UP = InstantKind("rank process up", "the rank can import TensorFlow")
APPLICATION_FINISHED = InstantKind("application finished", "YARN can reuse the application's containers")
DRIVER_JVM_EXIT = InstantKind("driver JVM exit", "spark-submit can exit")
SPARK_SUBMIT_EXIT = InstantKind("spark-submit exit", "the window ends")
PARENT_EXIT = InstantKind("parent process exit", "the window ends")

INSTANTS: dict[str, InstantKind] = {row: row for row in [*globals().values()] if type(row) is InstantKind}


def _registered(registry: str, key: Any) -> _Row:
    row: _Row = globals()[registry][key]
    return row


@cache
def kind_of(layer: str, name: str) -> tuple[SpanKind, str] | None:
    """Return the kind and the variable part of a recorded span; None for an unknown kind."""
    if (kind := SPANS.get((layer, name))) is not None:
        return kind, ""
    for kind in sorted(SPANS.values(), key=len, reverse=True):
        before, template, after = kind.partition("{}")
        if kind.layer == layer and template and name.startswith(before) and name.endswith(after):
            return kind, name[len(before) : len(name) - len(after)]
    return None


@cache
def cause_of(text: str) -> Cause | None:
    """Return the row of a recorded cause; None for an unknown cause."""
    rows = [row for row in CAUSES.values() if text.startswith(row)]
    return max(rows, key=len, default=None)


def server_lane(server: int, rank: int) -> str:
    """Return the lane of a parameter server's work for one worker; the thread's name is `rank-R`."""
    return f"ps-{server}/rank-{rank}"
