"""TensorFlow's parameter servers, beside the step: accumulators in the processes of the first ranks, over its gRPC.

    push   a rank adds its shard of a buffer to the accumulator of each server
    pull   once all ranks have pushed, a server puts the sum into a queue of each rank, which takes it from there

It is what TensorFlow's own `SyncReplicasOptimizer` is made of: conditional accumulators and queues, placed on the tasks
that serve. Ranks are tasks of one cluster, and the first `exchange_servers` of them serve too: what a rank pushes to
itself does not leave its process. A server sums in the order of arrival, so that with more than two ranks the last bits
differ from run to run. Its gRPC server listens on all interfaces, as with every exchange of TensorFlow's.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.all_reduce import AllReduceExchange, Meeting
from dlobd.network.exchanges.shards import shards
from dlobd.network.formation.address_book import FormationError

JOB = "rank"

LEAVE_S = 10.0
"""How long a rank that ends waits for the others, whose last sums may lie in its process."""

NEVER_STALE = 1 << 62
"""An accumulator drops what is of an earlier step than its own, which nothing is here: ranks leave a call together."""


class TfPs(AllReduceExchange):
    """By TensorFlow's accumulators."""

    def meet(self, meeting: Meeting) -> TfPsPeers:
        """Starts this rank's server of TensorFlow, at the address that all ranks know."""
        servers = meeting.settings.servers
        if servers > meeting.size:
            raise ExchangeFailed(f"exchange_servers {servers} are more than the {meeting.size} ranks, which serve")
        return TfPsPeers(meeting, servers)


class TfPsPeers:
    """See `dlobd.network.exchanges.all_reduce.Peers`."""

    def __init__(self, meeting: Meeting, servers: int) -> None:
        import tensorflow as tf

        self._tf = tf
        self._meeting = meeting
        self._servers = servers
        self._carried: list[tuple[int, int, int]] = []
        self._failed = False
        self._graph = tf.Graph()
        self._plans: dict[tuple[str, int, int], _Plan] = {}
        try:
            server = tf.compat.v1.train.Server(
                {JOB: list(meeting.peers)},
                JOB,
                meeting.rank,
                # a device that this process trains on is not to be taken a second time
                config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}),
            )
            meeting.all_gather("TensorFlow's server", "listens")
            self._session = tf.compat.v1.Session(server.target, graph=self._graph)
        except tf.errors.OpError as error:
            raise ExchangeFailed(
                f"TensorFlow's server of rank {meeting.rank} does not start: {_line(error)}"
            ) from error

    def barrier(self, call: int, deadline_s: float) -> None:
        """See the contract. An exchange of one number, by the first server."""
        self._sum(np.ones(1, np.float32), 1, deadline_s)

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        array[...] = self._sum(array, self._servers, deadline_s)
        rank = self._meeting.rank
        for server, part in enumerate(shards(array.size, self._servers)):
            size = array[part].nbytes
            others = set(range(self._meeting.size)) - {rank} if rank == server else {server}
            for other in sorted(others) if size else ():
                self._carried += [(rank, other, size), (other, rank, size)]

    def carried(self) -> list[tuple[int, int, int]]:
        """What pushes and pulls are made of: TensorFlow does not count."""
        found, self._carried = sorted(self._carried), []
        return found

    def evidence(self) -> None:
        """TensorFlow does not count; the kernel does."""

    def addresses(self) -> tuple[str, ...]:
        """See the contract."""
        return (self._meeting.peers[self._meeting.rank],)

    def fail(self) -> None:
        """Nothing: the others learn of it when this process ends."""
        self._failed = True

    def close(self) -> None:
        """Ends the session, which spans all ranks, while all are there. TensorFlow's server ends with its process."""
        if self._failed:
            return
        with suppress(FormationError):  # a rank that ended otherwise is told of where it did
            self._all("have their sums")
            self._session.close()
            self._all("have closed their sessions")

    def _all(self, what: str) -> None:
        self._meeting.book.exchange(what, "", time.monotonic() + LEAVE_S)

    def _sum(self, array: NDArray[Any], servers: int, deadline_s: float) -> NDArray[Any]:
        """The sum over all ranks, in new memory."""
        if not array.size:
            return array
        plan = self._plan(array, servers)
        left_ms = max(1, int(1e3 * (deadline_s - time.monotonic())))
        options = self._tf.compat.v1.RunOptions(timeout_in_ms=left_ms)
        try:
            given = {feed: array[part] for feed, part in zip(plan.feeds, plan.parts, strict=True)}
            *found, _ = self._session.run([*plan.pulls, plan.pushes], given, options=options)
        except self._tf.errors.DeadlineExceededError as error:
            raise ExchangeFailed("not all ranks came to TensorFlow's parameter servers in time") from error
        except self._tf.errors.OpError as error:
            raise ExchangeFailed(f"TensorFlow's parameter servers failed: {_line(error)}") from error
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _plan(self, array: NDArray[Any], servers: int) -> _Plan:
        form = (array.dtype.str, array.size, servers)
        if (found := self._plans.get(form)) is None:
            with self._graph.as_default():
                found = self._plans[form] = _Plan(self._tf, array, servers, self._meeting.rank, self._meeting.size)
        return found


class _Plan:
    """The graph of one form of a call.

    Attributes:
        parts: the shards of the array, those that are empty left out.
        feeds, pulls: a part that goes, and the sum that comes, in the order of the parts.
        pushes: what has to run besides.
    """

    def __init__(self, tf: Any, array: NDArray[Any], servers: int, rank: int, size: int) -> None:
        v1 = tf.compat.v1
        self.parts: list[slice] = []
        self.feeds: list[Any] = []
        self.pulls: list[Any] = []
        pushes: list[Any] = []
        for server, part in enumerate(shards(array.size, servers)):
            if part.start == part.stop:
                continue
            name, shape = f"{array.dtype.str}-{array.size}-{server}", (part.stop - part.start,)
            with tf.device(f"/job:{JOB}/task:{rank}/cpu:0"):
                shard = v1.placeholder(array.dtype, shape)
            with tf.device(f"/job:{JOB}/task:{server}/cpu:0"):
                sums = v1.ConditionalAccumulator(array.dtype, shape, f"sum-{name}", reduction_type="SUM")
                queues = [
                    tf.queue.FIFOQueue(1, [array.dtype], [shape], shared_name=f"for-{each}-{name}")
                    for each in range(size)
                ]
                pushes.append(sums.apply_grad(shard, NEVER_STALE))
                if rank == server:  # who serves takes the sum once all have pushed, and hands it out
                    total = sums.take_grad(size)
                    pushes += [queue.enqueue(total) for queue in queues]
                self.pulls.append(queues[rank].dequeue())
            self.parts.append(part)
            self.feeds.append(shard)
        self.pushes = tf.group(pushes)


def _line(error: Exception) -> str:
    return str(getattr(error, "message", error)).partition("\n")[0]
