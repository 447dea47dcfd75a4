"""The contract of an exchange: what happens to gradients between `tape.gradient` and their application.

    0. It is made of `Settings`: what the experiment asks of it.
    1. `environment` says what a rank's process must have in its environment before it joins, from the addresses of all
       ranks. Launchers hand the addresses on, and know nothing of what is made of them.
    2. `join` is called once in each rank, after TensorFlow was imported, and returns when all ranks have joined.
    3. Models and the state of optimisers are made inside `scope`.
    4. `run` calls a function of tensors as this exchange needs it, and returns what it returned on this rank. What
       holds `reduce` goes through `run` where the exchange is inside the step, and so does whatever updates variables.
    5. `reduce` takes tensors of this rank, and returns their means over all ranks, in order. In a step they are the
       loss, the wish to end if training is limited in time, the statistics of the batch if the model follows them, and
       the gradients; between steps it may be one scalar on which ranks agree. Every rank calls it equally often with
       equal shapes: each call is a rendezvous.
           inside_step      it is called while the step is compiled, and runs as a part of it: no recorded boundary lies
                            between computing and exchanging, so that its time has no number. `not_measured` says why.
           otherwise        it is called between two compiled parts, with tensors that have values: the trainer's step
                            then is `forward and backward`, `exchange` and `apply`, and `exchange` is layer channel.
           not synchronous  ranks do not wait for each other. It takes gradients alone, and returns the sums of what was
                            pushed since this rank asked last, its own among it; variables differ between ranks.
    6. `close` ends what `join` began. It is called when a rank ends well; a rank that fails ends with its process.

`not_measured` is a declaration of the class: reports read it where TensorFlow is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dlobd.schema import NotMeasured


@dataclass(frozen=True, slots=True)
class Settings:
    """What an experiment asks of its exchange.

    channel: TRANSPORT[@DEVICE].
    library: a row of the registry `libraries`.
    fusion_bytes: the most that one message holds, unless a single tensor is larger.
    servers: how many parameter servers share the parameters, where there are such.
    """

    channel: str
    library: str
    fusion_bytes: int
    servers: int


class Exchange(Protocol):
    """What a row of the registry `exchanges` points to."""

    inside_step: ClassVar[bool]
    synchronous: ClassVar[bool]
    """Whether all ranks have the same variables, and take each step together."""

    not_measured: ClassVar[NotMeasured | None]
    """None where the exchange is outside of the step, and so has spans of its own."""

    def __init__(self, settings: Settings) -> None: ...

    @staticmethod
    def environment(peers: Sequence[str], rank: int) -> Mapping[str, str]:
        """Variable to value, for the process of `rank`; `peers` are the addresses host:port of all ranks, in order."""

    def join(self, tf: Any, peers: Sequence[str], rank: int) -> None:
        """Meets the other ranks. `peers` is empty or of one where there are no others."""

    def scope(self) -> AbstractContextManager[Any]:
        """In which variables are made."""

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """What `function(*arguments)` returns on this rank."""

    def reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        """The mean of each tensor over all `ranks`."""

    def close(self) -> None:
        """Leaves the other ranks."""
