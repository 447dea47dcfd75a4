"""THE table of what spans, instants and waits are called, where those who record and those who read must agree.

A layer needs no row here (`dlobd.layers`), nor does a name built from a third party's, such as `JVM: collect`.
Names are part of the stored format: a name is never given another meaning.
"""

from __future__ import annotations

# ---- spans of the driver and of Spark's Python workers

DRIVER = "driver"  # the whole of the driver's Python
PARENT = "parent"  # the same without Spark: the process that starts ranks
IMPORT_PYSPARK = "import pyspark"
SPARK_CONTEXT = "SparkContext"  # its constructor
SPARK_SESSION = "SparkSession"  # getOrCreate
SPARK_CONTEXT_STOP = "SparkContext.stop"
INPUT_SPLITS = "input splits"  # the RDD of the input's files, made and counted
INSTALL_HOOKS = "install hooks"  # before the user's own script
USER_CODE = "user code"  # what belongs to the user: a script, a function, a main function
UNPICKLE_FUNCTION = "unpickle function"

# ---- spans of launchers

IMPORT_TENSORFLOWONSPARK = "import tensorflowonspark"
TFCLUSTER_RUN = "TFCluster.run"
TFCLUSTER_TRAIN = "TFCluster.train"
TFCLUSTER_INFERENCE = "TFCluster.inference"
TFCLUSTER_SHUTDOWN = "TFCluster.shutdown"
TFPARALLEL_RUN = "TFParallel.run"
TFMANAGER_START = "TFManager.start"
CONNECT_TO_TFMANAGER = "connect to TFManager"
CONNECT_TO_QUEUE = "connect to queue"
REGISTER_RESERVATION = "register reservation"  # handed in when it ends
AWAIT_RESERVATIONS = "await reservations"  # at the driver and at each node
START_TASK = "start task"  # of one executor
FEED_TASK = "feed task"  # of one partition
SHUTDOWN_TASK = "shutdown task"  # of one executor
SLEEP = "sleep"  # of a third party, with its cause
FEED_JOB = "feed job"  # all partitions, all epochs
AWAIT_TRAINERS = "await trainers"  # until all have said that they are done
TELL_DRIVER = "tell driver"  # a rank, that it is done
FORK_TRAINER = "fork trainer"
IMPORT_DISTRIBUTOR = "import spark-tensorflow-distributor"
MIRRORED_STRATEGY_RUNNER = "MirroredStrategyRunner"  # its constructor
BARRIER_JOB = "barrier job"
BARRIER_TASK = "barrier task"  # of one rank
START_CHILD = "start child"  # a trainer's process
ALL_GATHER_ADDRESSES = "all-gather addresses"  # a rendezvous of that kind
TELL_PLACE = "tell child its place"
AWAIT_PLACE = "await place"  # the child, for that
WAIT_FOR_TRAINER = "wait for trainer"  # a task, for the end of its trainer's process
START_RANKS = "start ranks"
TELL_PLACES = "tell ranks their places"
WAIT_FOR_RANKS = "wait for ranks"

# ---- spans of the feed

READ_BLOCK = "read block"  # Spark hands one over
READ_ROWS = "read rows"  # the same of the user's own rows
PUT = "put"  # into the queue or pipe
GET = "get"  # out of it
READ_AHEAD = "read ahead"  # all that a trainer's thread gets before it is asked for
AWAIT_BLOCK = "await block"  # the step loop, for that thread
PUT_RESULTS = "put results"  # of an inference
TERMINATE_FEED = "terminate feed"

# ---- spans of a trainer

TRAINER = "trainer"  # the whole of its main function
IMPORT_TENSORFLOW = "import tensorflow"
JOIN_RANKS = "join ranks"  # a rendezvous of that kind
BUILD = "build"  # model, optimiser, step
BUILD_PIPELINE = "build pipeline"
CHECK_RECORDS = "check records"
DECODE = "decode"  # a block that was fed
AUGMENT = "augment"  # the same batch; a rank that reads does it in tf.data's threads
NEXT_BATCH = "next batch"  # out of tf.data
FIRST_STEP = "first step"  # TensorFlow traces and compiles in it
STEP = "step"  # all of it where the exchange is inside; else it holds the next three
FORWARD_AND_BACKWARD = "forward and backward"
EXCHANGE = "exchange"  # layer channel; with an exchange of dlobd's it holds the next four
PACK = "pack"  # tensors into the buffers that travel
WAIT_FOR_PEERS = "wait for peers"  # until all ranks have packed: a rendezvous of its own kind
WIRE = "wire"  # the collective
UNPACK = "unpack"  # means into tensors
PUSH, PULL = "push", "pull"  # of one asynchronous parameter server; they wait for its lane
LEAVE_SERVERS = "leave the servers"  # the last thing of an exchange that has some: a rendezvous of that kind
RECEIVE, SUM, SEND = "receive", "sum", "send"  # of a parameter server, for each call: one worker's, all, one worker's
APPLY = "apply"
AGREE = "agree"  # of all ranks, whether training ends: a rendezvous of that kind
TRANSPORT = "transport"  # an instant: what carried the exchange, by library and kernel
CHECKPOINT = "checkpoint"
SAVE_MODEL = "save model"
EVALUATE = "evaluate"
LOAD_MODEL = "load model"
PREDICT = "predict"  # one batch of the test set

# ---- spans of a file system: `read` and `write` with a purpose behind it, and the legs of a call

READ, WRITE = "read", "write"
STREAM = "stream"  # bytes that a DataNode sends
OPEN = "open"
LIST_DIRECTORY = "list directory"

INPUT = "input"  # a purpose, and so are those below
TEST_SET = "test set"
DATA_SET = "data set"
MODEL = "model"
MODEL_FILE = "model file"  # the source of a model of the user's own
DONE_MARKER = "done-marker"
READ_INPUT = f"{READ} {INPUT}"
WRITE_DONE_MARKER = f"{WRITE} {DONE_MARKER}"

# ---- instants

SPARK_CONTEXT_START = "SparkContext start"
SPARK_CONTEXT_READY = "SparkContext ready"
SPARK_CONTEXT_STOPPED = "SparkContext stopped"
LAUNCHER_SHUT_DOWN = "launcher shut down"
JOB_FAILED = "job failed"  # `cause`
PACKAGE_IMPORTED = "package imported"  # `package`, `by` which one, `ns` in all, `own_ns` without what it imported
PYTHON_DAEMON_UP = "python daemon up"
WORKER_FORKED = "worker forked"  # `pid`; its daemon says so
LOG_LEVEL = "log level"  # `level`, as the user's own script set it for the driver's log
FEED_PIPE = "feed pipe"  # `capacity_bytes`
FEED_EXHAUSTED = "feed exhausted"  # `blocks` or `items`, `join_poll_ns`
RANK_EXITED = "rank exited"  # `rank`; its parent has seen it
RANK_DONE = "rank is done"  # `rank`; the driver has heard it
RANK_FAILED = "rank failed"  # `cause`
DIVERGED = "training diverged"  # the loss is no number any more
TRAINER_DIED = "trainer died"  # `cause`; its parent has seen it
TENSORFLOW_IMPORTED = "TensorFlow imported"
RANKS_JOINED = "TensorFlow rendezvous done"
FIRST_BATCH = "first batch"
FIRST_STEP_DONE = "first step done"
EPOCH_DONE = "epoch done"  # `epoch`, from 1, and `loss`, the mean of its steps; each rank marks it
EPOCH_EVALUATED = "epoch evaluated"  # `epoch`, `samples`, `right`; of the chief
LAST_STEP_DONE = "last step done"  # its end, also where only an evaluation made it the last
SAVED = "saved"
EVALUATED = "evaluated"
DATANODE_GIVEN_UP = "DataNode given up"

# ---- whom a recorded wait is for, by role: no process knows the lanes of others

WAIT_FEEDER = "@feeder"  # what feeds this trainer: its executor, or its parent
WAIT_READER = "@reader"  # the threads that read for this trainer
WAIT_TRAINER = "@trainer"  # the one that this executor started last
WAIT_TRAINERS = "@trainers"  # the last one to finish
WAIT_LAST_RESERVATION = "@last-reservation"  # whose came last

# ---- kinds of rendezvous; with `call`, the number of the collective, its members are one group

STEP_RENDEZVOUS = "step"  # the exchange is inside: the step itself is the collective
EXCHANGE_RENDEZVOUS = "exchange"  # the exchange is outside
PEERS_RENDEZVOUS = "peers"  # all have packed


def server_lane(server: int, rank: int) -> str:
    """What a parameter server of dlobd's does for one worker; its thread is called `rank-R`."""
    return f"ps-{server}/rank-{rank}"
