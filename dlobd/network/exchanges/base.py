"""Interface of an exchange, which combines gradients between `tape.gradient` and their application.

    1. `environment` returns variables that a rank's process needs before it joins. Launchers only pass on
       the addresses of all ranks.
    2. `join` is called once in each rank, after TensorFlow was imported, and returns once all ranks have joined.
    3. `run` calls each function that contains `reduce` of an exchange inside the step, or that updates variables.
    4. `reduce` takes tensors of this rank. In a step they are the loss, the request to end if training is limited in
       time, the batch statistics if the model has any, and the gradients; between steps they may be one scalar on
       which ranks agree. Every rank calls it equally often with equal shapes: each call is a rendezvous.
           inside_step      it is called while the step is compiled, and runs as a part of it: there is no boundary
                            between compute and exchange, so its time is unknown. `not_measured` gives the reason.
           otherwise        it is called between two compiled parts, with tensors that have values: the trainer's step
                            is then `forward and backward`, `exchange` (layer channel) and `apply`.
           not synchronous  ranks do not wait for each other. It takes only gradients, and returns the sums of all
                            pushes since this rank's last call, including its own; variables differ between ranks.
    5. `close` is called when a rank succeeds; a rank that fails ends with its process.

`not_measured` is declared on the class: reports read it without TensorFlow.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dlobd.channel import Channel
from dlobd.schema import NotMeasured

TensorFlow = Any  # the module tensorflow
Tensor = Any  # tensor of TensorFlow, or array


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an exchange, from the experiment."""

    channel: Channel
    library: str  # row of the registry `libraries`
    fusion_bytes: int  # largest message, unless a single tensor is larger
    servers: int  # number of parameter servers, for the exchanges that have them


class Exchange(Protocol):
    """Interface of an exchange, which is a row of the registry `exchanges`."""

    inside_step: ClassVar[bool]
    synchronous: ClassVar[bool]
    """True if all ranks have the same variables and take each step together."""

    not_measured: ClassVar[NotMeasured | None]
    """Reason why the exchange time is not measured; None for an exchange outside the step, which has its own spans."""

    def __init__(self, settings: Settings) -> None: ...

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Return variables for the process of `rank`; `peers` are the addresses host:port of all ranks, in order."""

    def join(self, tf: TensorFlow, peers: Sequence[str], rank: int) -> None:
        """Connect to the other ranks. A single rank has at most one entry in `peers`."""

    def scope(self) -> AbstractContextManager[object]:
        """Return the context manager for the creation of variables."""

    def run(self, function: Callable[..., Tensor], arguments: Sequence[Tensor]) -> Tensor:
        """Return the result of `function(*arguments)` on this rank."""

    def reduce(self, tf: TensorFlow, tensors: Sequence[Tensor], ranks: int) -> list[Tensor]:
        """Return the mean of each tensor over all `ranks`."""

    def close(self) -> None:
        """Leave the other ranks."""
