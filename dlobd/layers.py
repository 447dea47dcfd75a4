"""The table of layers: begin and end of their time, their sources and their limits. Standard library only.

`docs/layers.md` is generated from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """Component that takes a part of a job's time."""

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
        "own clock",
        "nothing; it is dlobd's own process",
    ),
    Layer(
        "yarn",
        "YARN",
        "YARN",
        "#E69F00",
        "submit RPC; registration; for an executor, its request, and again the NodeManager's start request",
        "registered; container handed over; its process started; at the end, unregister to finished",
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
        "driver, ApplicationMaster, executor and JVM logs, own marks",
        "JVM work inside a Python task, unless Spark logs it",
    ),
    Layer(
        "launcher",
        "Spark",
        "Launcher",
        "#CC79A7",
        "TensorFlowOnSpark is imported, TFCluster.run is called, or the start task begins",
        "trainer forked; at the end, TFCluster.shutdown returned",
        "own wrappers around TensorFlowOnSpark",
        "details inside TensorFlowOnSpark: time that is neither a poll nor a wrapped call stays launcher",
    ),
    Layer(
        "feed",
        "Spark",
        "Feed queue",
        "#F0E442",
        "a block is put into, or awaited from, the trainer's queue",
        "put returned, or the block arrived",
        "own wrappers at both ends of the queue",
        "the queue's own server process",
    ),
    Layer(
        "hdfs",
        "HDFS",
        "HDFS",
        "#009E73",
        "a file is located, opened, read, written or closed",
        "the client's call returned",
        "own WebHDFS timers, driver log, NameNode audit log, DataNode client trace",
        "whether data came from page cache or disk; what Spark's JVM reads inside a task is an interval, not a number",
    ),
    Layer(
        "tensorflow",
        "TensorFlow",
        "TensorFlow",
        "#0072B2",
        "the trainer process is forked",
        "the trainer process exits",
        "own timers in the trainer",
        "operations inside one step; the gradient exchange inside a step",
    ),
    Layer(
        "user",
        "job",
        "User code",
        "#882255",
        "the first line of your own script, or your function in a Python worker",
        "it ended",
        "own wrappers around the script and around what PySpark's workers run",
        "anything inside: your code is one span, including PySpark's loop around it; dlobd's own training job has none",
    ),
    Layer(
        "channel",
        "network",
        "Channel",
        "#56B4E9",
        "a rank hands over its gradients",
        "the reduced gradients are back",
        "own timers in dlobd's exchanges",
        "TensorFlow's own gRPC collectives, which run inside a step",
    ),
)

LAYERS: dict[str, Layer] = {row.name: row for row in _ROWS}
"""Layers by name, in the order of reports."""

CLIENT, YARN, SPARK, LAUNCHER, FEED, HDFS, TENSORFLOW, USER, CHANNEL = LAYERS

UNATTRIBUTED = "unattributed"
"""Not a layer: time of the main lane in which no span was open."""


def title(layer: str) -> str:
    """Return the title of a layer; any other name, such as `wall`, is its own title."""
    return LAYERS[layer].title if layer in LAYERS else layer
