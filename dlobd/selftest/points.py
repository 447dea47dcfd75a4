"""THE table of injection points: where a delay is put, how, and which layer has to be blamed for it."""

from __future__ import annotations

from dataclasses import dataclass

from dlobd.tracing import names


@dataclass(frozen=True, slots=True)
class Point:
    """One place at a layer's boundary.

    `often`: whether a run passes there many times, so that several delays fit into one run.
    `part`: the span that the delay has to be found in; empty where any of the layer will do.
    """

    name: str
    layer: str
    how: str
    often: bool = False
    part: str = ""


_ROWS = (
    Point("client/exec", "client", "the child of dlobd waits before it becomes spark-submit"),
    Point(
        "yarn/queue", "yarn", "another application holds the queue's memory for ApplicationMasters; then it is killed"
    ),
    Point("yarn/localise", "yarn", "the NodeManager is stopped while it localises the ApplicationMaster's container"),
    Point("spark/executor-start", "spark", "the executor's container is stopped as soon as its process exists"),
    Point("spark/python-start", "spark", "Spark's Python daemon waits as soon as its interpreter is up"),
    Point(
        "spark/slow-task", "spark", "a Spark task waits before it hands out a block, while the trainer wants it", True
    ),
    Point("launcher/rendezvous", "launcher", "a node waits before it hands in its reservation or its address"),
    Point("feed/put", "feed", "the feeding side waits inside a put, while the trainer wants the block", True),
    Point("feed/get", "feed", "the trainer's side waits inside a get, although the block is there", True),
    Point("hdfs/read", "hdfs", "the DataNodes are stopped when the trainer opens its input"),
    Point("hdfs/write", "hdfs", "the DataNodes are stopped when the trainer stores its model"),
    Point("tensorflow/step", "tensorflow", "one rank computes for so long in a step", True),
    Point("tensorflow/decode", "tensorflow", "one rank waits before a step, while the others are in it", True),
    Point(
        "channel/pack",
        "channel",
        "one rank waits while it packs, as the others wait for it",
        True,
        names.PACK,
    ),
    Point(
        "channel/wait",
        "channel",
        "one rank waits inside the barrier before a collective",
        True,
        names.WAIT_FOR_PEERS,
    ),
    Point("channel/wire", "channel", "one rank waits inside a collective, which no other can end", True, names.WIRE),
    Point("channel/unpack", "channel", "the chief waits while it makes tensors of the means", True, names.UNPACK),
    Point("user/script", "user", "the user's own script waits between two calls of Spark"),
    Point("user/task", "user", "the user's own function waits in a Spark task"),
)

POINTS: dict[str, Point] = {row.name: row for row in _ROWS}
"""Name to point, in the order of the layers."""
