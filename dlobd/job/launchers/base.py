"""The launcher contract.

A launcher runs inside the driver, after SparkContext is up:
    1. it assigns a role to every executor, and starts `main(job, node)` there, in a process that outlives Spark's
       tasks. Each rank receives the addresses of all ranks, from which `place` makes its `Node`; it receives no other
       data about peers, channel and exchange;
    2. it feeds `blocks`, one partition per rank and epoch, until the ranks have taken all of them or stop the feed
       (`Feed.stop`). Without blocks the ranks read their files themselves;
    3. it waits until every rank is done, or a rank has failed;
    4. it stops the ranks.
It records spans of layer `launcher` for its own work, and of layer `feed` for the queue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from dlobd import tracing
from dlobd.axes import EXCHANGES
from dlobd.job.launchers.addresses import without_proxy
from dlobd.spans import SpanKind

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from dlobd.job.description import Job
    from dlobd.job.rank_status import JobStatus

T = TypeVar("T")


class Feed(Protocol):
    """The trainer's end of the feed queue."""

    def next_block(self) -> bytes | None:
        """Return the next block of records, or None after the end of the feed."""

    def stop(self) -> None:
        """Stop the feed, even if blocks remain. Called at most once, as the last call."""


@dataclass(frozen=True, slots=True)
class Node:
    """Rank and peers of a trainer."""

    rank: int
    peers: tuple[str, ...]  # host:port of all ranks, by rank; the launcher has reserved these ports
    feed: Feed | None = None  # None if ranks read their files themselves
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that the exchange needs before it joins


def recorded_reads(items: Iterator[T], kind: SpanKind) -> Iterator[T]:
    """Yield items other than None, with a span around each read of an item and of the end."""
    while True:
        with tracing.span(kind):
            item = next(items, None)
        if item is None:
            return
        yield item


def role_of(rank: int) -> tuple[str, int]:
    """Return role and index of a rank: 0 is the chief, i + 1 is worker i."""
    return ("worker", rank - 1) if rank else ("chief", 0)


def rank_name(rank: int) -> str:
    """Format role and index of a rank, such as `worker 0`."""
    role, index = role_of(rank)
    return f"{role} {index}"


def place(job: Job, rank: int, peers: Sequence[str], feed: Feed | None) -> Node:
    """Make the node of a rank, in the rank's own process. The job's `exchange` defines its environment."""
    environment = {**EXCHANGES.get(job.exchange).environment(peers, rank), **without_proxy(peers, os.environ)}
    return Node(rank, tuple(peers), feed, environment)


Main = Callable[["Job", Node], None]  # a trainer's main function: `main(job, node)`


class Launcher(Protocol):
    """Interface for starting trainers on Spark's executors, or without Spark (`sc` is None)."""

    def spark_conf(self) -> dict[str, str]:
        """Return the Spark settings that spark-submit needs for this launcher."""

    def launch(self, sc: SparkContext, main: Main, job: Job, blocks: RDD[bytes] | None, status: JobStatus) -> None:
        """Run the four steps above. Raises TrainingFailed, with the cause in one line, if a rank fails."""


class TrainingFailed(Exception):
    """Failure of a rank; the message is its cause in one line."""
