"""TensorFlow's collectives: MultiWorkerMirroredStrategy, a ring all-reduce over TensorFlow's gRPC, inside each step."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.exchanges.base import Settings, Tensor, TensorFlow
from dlobd.network.verdict.evidence import Snapshot, record
from dlobd.schema import NotMeasured


class TfRing:
    """Exchange `tf-ring`: TensorFlow's ring all-reduce, inside the step."""

    inside_step: ClassVar[bool] = True
    synchronous: ClassVar[bool] = True
    not_measured: ClassVar[NotMeasured | None] = NotMeasured(
        "channel",
        "tensorflow",
        "TensorFlow's ring all-reduce runs inside each compiled step, so dlobd cannot separate it from the computation",
    )

    def __init__(self, settings: Settings) -> None:
        self._strategy: Any = None
        self._rank, self._address = 0, ""
        self._before: Snapshot | None = None

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Return TF_CONFIG, the cluster specification: rank 0 is the chief, the other ranks are workers."""
        workers = {"worker": list(peers[1:])} if len(peers) > 1 else {}
        task = {"type": "worker", "index": rank - 1} if rank else {"type": "chief", "index": 0}
        return {"TF_CONFIG": json.dumps({"cluster": {"chief": list(peers[:1]), **workers}, "task": task})}

    def join(self, tf: TensorFlow, peers: Sequence[str], rank: int) -> None:
        if len(peers) > 1:
            self._rank, self._address, self._before = rank, peers[rank], Snapshot.read()
        experimental = tf.distribute.experimental
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=experimental.CommunicationOptions(
                implementation=experimental.CommunicationImplementation.RING
            )
        )

    def scope(self) -> AbstractContextManager[object]:
        scope: AbstractContextManager[object] = self._strategy.scope()
        return scope

    def run(self, function: Callable[..., Tensor], arguments: Sequence[Tensor]) -> Tensor:
        return self._strategy.experimental_local_results(self._strategy.run(function, args=tuple(arguments)))[0]

    def reduce(self, tf: TensorFlow, tensors: Sequence[Tensor], ranks: int) -> list[Tensor]:
        replica = tf.distribute.get_replica_context()
        # arguments of a function have no device yet, but this strategy reads the device of tensors
        placed = [tf.identity(tensor) for tensor in tensors]
        return [total / ranks for total in replica.all_reduce(tf.distribute.ReduceOp.SUM, placed)]

    def close(self) -> None:
        """Record the kernel's counters; TensorFlow's server ends with its process."""
        if self._before is not None:
            attrs = record(self._rank, "tensorflow", self._before, addresses=[self._address])
            tracing.instant(kinds.TRANSPORT, **attrs)
            self._before = None
