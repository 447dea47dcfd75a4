"""The launcher contract.

A launcher runs inside the driver, after SparkContext is up:
    1. it gives every executor a role and starts `main(job, node)` there, in a process that outlives Spark's tasks. Each
       rank is told the addresses of all ranks, and `place` makes its `Node` of them: no other word on peers, channel or
       exchange passes from a launcher to a rank;
    2. it feeds `blocks`, one partition per rank and epoch, until the ranks have taken everything or say that they want
       no more (`Feed.stop`); without blocks the ranks read for themselves, and there is nothing to feed;
    3. it waits until every rank has said that it is done, or one has failed;
    4. it stops the ranks.
It records spans of layer `launcher` for its own work, and of layer `feed` for the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dlobd.axes import EXCHANGES

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

FIRST_LOOK_S, LONGEST_PAUSE_S = 2.0, 10.0
"""The driver looks at the markers after so long, then after pauses twice as long each, up to the second: a rank whose
host cannot reach the driver is noticed, and a NameNode is asked a few times in a job."""

ROLES = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's own words. Rank 0 is the chief; worker i is rank i + 1."""


@dataclass(frozen=True, slots=True)
class Roles:
    """How many executors take each role. A cluster needs a chief: one rank must save."""

    chief: int = 1
    worker: int = 0
    ps: int = 0
    evaluator: int = 0

    @property
    def executors(self) -> int:
        """All of them together."""
        return self.chief + self.worker + self.ps + self.evaluator

    @property
    def ranks(self) -> int:
        """Those that train: chief and workers."""
        return self.chief + self.worker


class Feed(Protocol):
    """The trainer's end of the queue."""

    def next_block(self) -> bytes | None:
        """The next block of records, or None once the feed has ended."""

    def stop(self) -> None:
        """Says that no block is wanted any more, although some may come. Called at most once, as the last."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a trainer is told about itself and its peers.

    Args:
        peers: host:port of all ranks, in the order of their ranks; a free port of each, held for it by its launcher.
        environment: what the exchange wants to find in the environment of this process before it joins.
        feed: None where ranks read for themselves.
    """

    role: str
    index: int
    peers: tuple[str, ...]
    feed: Feed | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.peers)

    @property
    def rank(self) -> int:
        """0 for the chief, i + 1 for worker i."""
        return self.index if self.role == "chief" else self.index + 1


def role_of(rank: int) -> tuple[str, int]:
    """Role and index of a rank."""
    return ("worker", rank - 1) if rank else ("chief", 0)


def place(job: Any, rank: int, peers: Sequence[str], feed: Feed | None) -> Node:
    """The node of a rank, in the rank's own process.

    Args:
        job: its `exchange` says what it wants in the environment.
    """
    environment = EXCHANGES.get(job.exchange).environment(peers, rank)
    return Node(*role_of(rank), tuple(peers), feed, environment)


Main = Callable[[Any, Node], None]
"""A trainer's main function: `main(job, node)`."""


class Launcher(Protocol):
    """One way to start trainers: on Spark's executors, or, with `sc` None, without Spark."""

    def spark_conf(self) -> dict[str, str]:
        """Spark settings that spark-submit needs for this launcher."""

    def launch(
        self, sc: SparkContext, main: Main, job: Any, roles: Roles, blocks: RDD[bytes] | None, epochs: int, done: Done
    ) -> None:
        """Runs the four steps above.

        Raises:
            TrainingFailed: a rank failed; its one-line cause is in the message.
        """


class Done(Protocol):
    """How ranks say that they have finished, evaluated and saved."""

    def finished(self) -> frozenset[int]:
        """Ranks that are done, as far as the driver was told or has looked."""

    def failure(self) -> str | None:
        """The cause in one line, if a rank has failed, as far as the driver was told or has looked."""

    def last_word(self) -> str | None:
        """The same, after a look at the markers: something has failed, and perhaps nobody could tell why."""

    def wait(self, known: frozenset[int], within_s: float) -> None:
        """Returns as soon as more ranks than those are done, or one has failed; at the latest after so long."""

    def report_failure(self, cause: str) -> None:
        """Leaves what a rank says of itself. Called on an executor, so it must pickle."""

    def report_death(self, cause: str) -> None:
        """Leaves a word for a rank that could not speak. It outranks failures: its peers fail because of it."""


class TrainingFailed(Exception):
    """A rank failed; the message is its cause in one line."""
