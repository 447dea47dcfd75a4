"""TensorFlow's own collectives: MultiWorkerMirroredStrategy, a ring all-reduce over its gRPC, inside of each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.exchanges.base import Settings
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record
from dlobd.schema import NotMeasured


class TfRing:
    """See `dlobd.network.exchanges.base.Exchange`."""

    inside_step: ClassVar[bool] = True
    synchronous: ClassVar[bool] = True
    not_measured: ClassVar[NotMeasured | None] = NotMeasured(
        "channel",
        "tensorflow",
        "TensorFlow's ring all-reduce runs inside each step, over its own gRPC: no boundary of ours lies in between",
    )

    def __init__(self, settings: Settings) -> None:
        self._strategy: Any = None
        self._rank, self._address = 0, ""
        self._before: Snapshot | None = None

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """TF_CONFIG, by which TensorFlow finds the other ranks: rank 0 is the chief, the others are workers."""
        workers = {"worker": list(peers[1:])} if len(peers) > 1 else {}
        task = {"type": "worker", "index": rank - 1} if rank else {"type": "chief", "index": 0}
        return {"TF_CONFIG": json.dumps({"cluster": {"chief": list(peers[:1]), **workers}, "task": task})}

    def join(self, tf: Any, peers: Sequence[str], rank: int) -> None:
        """TensorFlow starts its gRPC server here and returns once all ranks have."""
        if len(peers) > 1:
            self._rank, self._address, self._before = rank, peers[rank], Snapshot.read()
        experimental = tf.distribute.experimental
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=experimental.CommunicationOptions(
                implementation=experimental.CommunicationImplementation.RING
            )
        )

    def scope(self) -> AbstractContextManager[Any]:
        """Of the strategy."""
        scope: AbstractContextManager[Any] = self._strategy.scope()
        return scope

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """On this rank's only replica."""
        return self._strategy.experimental_local_results(self._strategy.run(function, args=tuple(arguments)))[0]

    def reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        """One collective for all of them."""
        replica = tf.distribute.get_replica_context()
        # a function's argument has no device yet, and this strategy asks tensors for theirs
        placed = [tf.identity(tensor) for tensor in tensors]
        return [total / ranks for total in replica.all_reduce(tf.distribute.ReduceOp.SUM, placed)]

    def close(self) -> None:
        """Says what the kernel counted; TensorFlow's server ends with its process."""
        if self._before is not None:
            found = record(self._rank, "tensorflow", self._before, addresses=[self._address])
            tracing.instant(kinds.TRANSPORT, **found)
            self._before = None
