"""The table of layers: begin and end of their time, their sources and their limits. Standard library only.

`docs/layers.md` is generated from this table.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """Component to which a part of a job's time is attributed."""

    name: str
    group: str
    title: str
    colour: str  # from Okabe and Ito's palette for colour-blind readers; the ninth colour is Tol's
    opens: str
    closes: str
    source: str
    cannot_see: str


_ROWS = (
    Layer(
        "client",
        "client",
        "dlobd client",
        "#999999",
        "just before exec of spark-submit",
        "observed exit of spark-submit",
        "dlobd's clock",
        "nothing; it is dlobd's own process",
    ),
    Layer(
        "yarn",
        "YARN",
        "YARN",
        "#E69F00",
        "submit RPC; registration; container request of an executor; NodeManager's start request; unregistration",
        "registered; container handed over; container's process started; application finished",
        "ResourceManager, NodeManager and ApplicationMaster logs",
        "the scheduler's work between two heartbeats",
    ),
    Layer(
        "spark",
        "Spark",
        "Spark",
        "#D55E00",
        "exec of a JVM (spark-submit, ApplicationMaster, executor); a container is handed to the ApplicationMaster",
        "registered; job, stage and task scheduling; Python worker boot; stop; process exit",
        "driver, ApplicationMaster, executor and JVM logs, dlobd's marks",
        "JVM work inside a Python task, unless Spark logs it",
    ),
    Layer(
        "launcher",
        "Spark",
        "Launcher",
        "#CC79A7",
        "TensorFlowOnSpark is imported, TFCluster.run or torchrun is called, or the start task begins",
        "trainer forked; at the end, TFCluster.shutdown or torchrun returned",
        "dlobd's wrappers around TensorFlowOnSpark and torchrun",
        "details inside TensorFlowOnSpark and torchrun: time outside of polls and wrapped calls is the launcher's",
    ),
    Layer(
        "feed",
        "Spark",
        "Feed queue",
        "#F0E442",
        "a block is put into, or awaited from, the trainer's queue",
        "put returned, or the block arrived",
        "dlobd's wrappers at both ends of the queue",
        "the queue's own server process",
    ),
    Layer(
        "hdfs",
        "HDFS",
        "HDFS",
        "#009E73",
        "a file is located, opened, read, written or closed",
        "the client's call returned",
        "dlobd's WebHDFS timers, driver log, NameNode audit log, DataNode client trace",
        "origin of data, page cache or disk; reads of Spark's JVM inside a task are known only as a range",
    ),
    Layer(
        "tensorflow",
        "TensorFlow",
        "TensorFlow",
        "#0072B2",
        "the trainer process is forked; PyTorch's import, rendezvous or step begins; XGBoost's communicator starts",
        "the trainer process exits; PyTorch's call returned; XGBoost's communicator ended",
        "dlobd's timers in the trainer",
        "operations inside one step; the gradient exchange inside a step",
    ),
    Layer(
        "user",
        "job",
        "User code",
        "#882255",
        "the first line of your own script, or your function in a Python worker or in a process of torchrun",
        "the script or the function ended",
        "dlobd's wrappers around the script and around the functions that PySpark's workers run",
        "PySpark's loop around functions of rows; details of your code; dlobd's own training job has no such span",
    ),
    Layer(
        "channel",
        "network",
        "Channel",
        "#56B4E9",
        "a rank hands over its gradients",
        "the reduced gradients are back",
        "timers in dlobd's exchanges",
        "TensorFlow's own gRPC collectives, which run inside a step",
    ),
)

LAYERS: dict[str, Layer] = {row.name: row for row in _ROWS}
"""Layers by name, in the order of reports."""

CLIENT, YARN, SPARK, LAUNCHER, FEED, HDFS, TENSORFLOW, USER, CHANNEL = LAYERS

UNATTRIBUTED = "unattributed"
"""Not a layer: time of the main lane in which no span was open."""


def title(layer: str) -> str:
    """Return the title of a layer. Any other name, such as `wall`, is returned unchanged."""
    return LAYERS[layer].title if layer in LAYERS else layer
