"""TensorFlow's parameter servers, outside the step: accumulators in the first ranks' processes, over its gRPC.

    push   a rank adds its shard of a buffer to the accumulator of each server
    pull   once all ranks have pushed, a server puts the sum into the queue of each rank, which takes it

These are the primitives of TensorFlow's `SyncReplicasOptimizer`: conditional accumulators and queues, placed on the
serving tasks. Ranks are tasks of one cluster, and the first `exchange_servers` ranks serve too: a rank's push to
itself stays in its process. A server sums in the order of arrival, so with more than two ranks the last bits differ
between runs. Its gRPC server listens on all interfaces, as in every exchange of TensorFlow.
"""

import time
from contextlib import suppress

import numpy as np

from dlobd.network.channels.base import Array
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.base import Tensor, TensorFlow
from dlobd.network.exchanges.fusion import shards
from dlobd.network.exchanges.outside_step import JoinContext, OutsideStepExchange, Peers
from dlobd.network.rendezvous.store import RendezvousError

JOB = "rank"
LEAVE_S = 10.0  # timeout of a finished rank that waits for the other ranks: their last sums may be in its process

NEVER_STALE = 1 << 62
"""Step number of pushes: an accumulator drops pushes with a lower step than its own; ranks finish each call together,
so no push is stale."""


class TfPs(OutsideStepExchange):
    """Exchange `tf-ps`: TensorFlow's parameter servers, outside the step."""

    def connect(self, context: JoinContext) -> "TfPsPeers":
        return TfPsPeers(context)


class TfPsPeers(Peers):
    """Sessions of TensorFlow, which does not count bytes. Other ranks detect a failure when this process ends."""

    def __init__(self, context: JoinContext) -> None:
        import tensorflow as tf

        self._tf = tf
        self._context = context
        self._servers = context.servers
        self.addresses = (context.peers[context.rank],)
        self._carried: list[tuple[int, int, int]] = []
        self._failed = False
        self._graph = tf.Graph()
        self._plans: dict[tuple[str, int, int], _Plan] = {}
        try:
            server = tf.compat.v1.train.Server(
                {JOB: list(context.peers)},
                JOB,
                context.rank,
                # the server must not allocate the device that this process trains on
                config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}),
            )
            context.all_gather("TensorFlow's server", "listens")
            self._session = tf.compat.v1.Session(server.target, graph=self._graph)
        except tf.errors.OpError as error:
            raise ExchangeFailed(f"TensorFlow's server of rank {context.rank} cannot start: {_line(error)}") from error

    def barrier(self, call: int, deadline_s: float) -> None:
        self._sum(np.ones(1, np.float32), 1, deadline_s)

    def all_reduce(self, array: Array, deadline_s: float) -> None:
        array[...] = self._sum(array, self._servers, deadline_s)
        rank = self._context.rank
        for server, part in enumerate(shards(array.size, self._servers)):
            size = array[part].nbytes
            others = set(range(self._context.size)) - {rank} if rank == server else {server}
            for other in sorted(others) if size else ():
                self._carried += [(rank, other, size), (other, rank, size)]

    def carried(self) -> list[tuple[int, int, int]]:
        transfers, self._carried = sorted(self._carried), []
        return transfers

    def fail(self) -> None:
        self._failed = True

    def close(self) -> None:
        """Close the session of all ranks, while all ranks still run. TensorFlow's server ends with its process."""
        if self._failed:
            return
        with suppress(RendezvousError):  # a rank that failed reports its own error
            self._wait_for_all("sums received")
            self._session.close()
            self._wait_for_all("sessions closed")

    def _wait_for_all(self, what: str) -> None:
        self._context.store.all_gather(what, "", time.monotonic() + LEAVE_S)

    def _sum(self, array: Array, servers: int, deadline_s: float) -> Array:
        """Return the sum over all ranks, in new memory."""
        if not array.size:
            return array
        plan = self._plan(array, servers)
        left_ms = max(1, int(1e3 * (deadline_s - time.monotonic())))
        options = self._tf.compat.v1.RunOptions(timeout_in_ms=left_ms)
        try:
            feeds = {feed: array[part] for feed, part in zip(plan.feeds, plan.parts, strict=True)}
            *pulled, _ = self._session.run([*plan.pulls, plan.pushes], feeds, options=options)
        except self._tf.errors.DeadlineExceededError as error:
            raise ExchangeFailed("not all ranks reached TensorFlow's parameter servers in time") from error
        except self._tf.errors.OpError as error:
            raise ExchangeFailed(f"TensorFlow's parameter servers failed: {_line(error)}") from error
        return pulled[0] if len(pulled) == 1 else np.concatenate(pulled)

    def _plan(self, array: Array, servers: int) -> "_Plan":
        form = (array.dtype.str, array.size, servers)
        if (found := self._plans.get(form)) is None:
            with self._graph.as_default():
                found = self._plans[form] = _Plan(self._tf, array, servers, self._context.rank, self._context.size)
        return found


class _Plan:
    def __init__(self, tf: TensorFlow, array: Array, servers: int, rank: int, size: int) -> None:
        v1 = tf.compat.v1
        self.parts: list[slice] = []
        self.feeds: list[Tensor] = []
        self.pulls: list[Tensor] = []
        pushes: list[Tensor] = []
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
                if rank == server:  # the server distributes the sum once all ranks have pushed
                    total = sums.take_grad(size)
                    pushes += [queue.enqueue(total) for queue in queues]
                self.pulls.append(queues[rank].dequeue())
            self.parts.append(part)
            self.feeds.append(shard)
        self.pushes = tf.group(pushes)


def _line(error: Exception) -> str:
    return str(getattr(error, "message", error)).partition("\n")[0]
