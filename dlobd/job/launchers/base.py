"""The launcher contract.

A launcher runs inside the driver, after SparkContext is up:
    1. it gives every executor a role and starts `main(job, node)` there, in a process that outlives Spark's tasks. Each
       rank receives the addresses of all ranks, and `place` makes its `Node` from them; a rank receives nothing else
       about peers, channel and exchange;
    2. it feeds `blocks`, one partition per rank and epoch, until the ranks have taken all of them or stop the feed
       (`Feed.stop`). Without blocks the ranks read their files themselves;
    3. it waits until every rank is done, or a rank has failed;
    4. it stops the ranks.
It records spans of layer `launcher` for its own work, and of layer `feed` for the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dlobd.axes import EXCHANGES

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from dlobd.job.description import Job

FIRST_LOOK_S, LONGEST_PAUSE_S = 2.0, 10.0
"""The first pause before the driver reads the markers, and the longest: pauses double. So the driver notices a rank
whose host cannot reach it, with a few requests to the NameNode in a job."""

ROLES = ("chief", "worker", "ps", "evaluator")  # TensorFlow's names. Rank 0 is the chief; worker i is rank i + 1.


@dataclass(frozen=True, slots=True)
class Roles:
    """The number of executors of each role. A cluster needs a chief, which saves the model."""

    chief: int = 1
    worker: int = 0
    ps: int = 0
    evaluator: int = 0

    @property
    def executors(self) -> int:
        """Executors of all roles."""
        return self.chief + self.worker + self.ps + self.evaluator

    @property
    def ranks(self) -> int:
        """Executors that train: chief and workers."""
        return self.chief + self.worker


class Feed(Protocol):
    """The trainer's end of the queue."""

    def next_block(self) -> bytes | None:
        """Return the next block of records, or None after the end of the feed."""

    def stop(self) -> None:
        """Stop the feed, although blocks may be left. Called at most once, as the last call."""


@dataclass(frozen=True, slots=True)
class Node:
    """The role of a trainer, and its peers."""

    role: str
    index: int
    peers: tuple[str, ...]  # host:port of all ranks, by rank; a free port of each, reserved by its launcher
    feed: Feed | None = None  # none if ranks read their files themselves
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that the exchange needs before it joins

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.peers)

    @property
    def rank(self) -> int:
        """0 for the chief, i + 1 for worker i."""
        return self.index if self.role == "chief" else self.index + 1


def role_of(rank: int) -> tuple[str, int]:
    """Return role and index of a rank."""
    return ("worker", rank - 1) if rank else ("chief", 0)


def rank_name(rank: int) -> str:
    """Return role and index in one string."""
    role, index = role_of(rank)
    return f"{role} {index}"


def place(job: Job, rank: int, peers: Sequence[str], feed: Feed | None) -> Node:
    """Make the node of a rank, in the rank's own process.

    Args:
        job: its `exchange` defines the environment.
    """
    environment = EXCHANGES.get(job.exchange).environment(peers, rank)
    return Node(*role_of(rank), tuple(peers), feed, environment)


Main = Callable[["Job", Node], None]  # a trainer's main function: `main(job, node)`


class Launcher(Protocol):
    """A way to start trainers: on Spark's executors, or, with `sc` None, without Spark."""

    def spark_conf(self) -> dict[str, str]:
        """Return the Spark settings that spark-submit needs for this launcher."""

    def launch(
        self,
        sc: SparkContext,
        main: Main,
        job: Job,
        roles: Roles,
        blocks: RDD[bytes] | None,
        epochs: int,
        status: Status,
    ) -> None:
        """Run the four steps above. Raises TrainingFailed: a rank failed; the message is its cause in one line."""


class Status(Protocol):
    """The status of all ranks, from their messages and markers."""

    def finished(self) -> frozenset[int]:
        """Return the ranks that are known to be done: trained, evaluated and saved."""

    def failure(self) -> str | None:
        """Return the known cause of a failure in one line; None without a failure."""

    def final_failure(self) -> str | None:
        """Return the cause after the job has failed: waits for late messages, and read the markers."""

    def wait(self, finished: frozenset[int], timeout_s: float) -> None:
        """Wait until more ranks than `finished` are done, or a rank has failed, or the timeout is over."""

    def report_failure(self, cause: str) -> None:
        """Report the failure of a rank, by the rank. Called on an executor, so it must pickle."""

    def report_death(self, cause: str) -> None:
        """Report the death of a rank, by another process. It overrides the later failures of its peers."""


class TrainingFailed(Exception):
    """Failure of a rank; the message is its cause in one line."""
