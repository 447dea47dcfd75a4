"""The optimiser contract, and its members.

An optimiser
    1. is made once in each rank, inside the exchange's scope, after the model: `Make`. State that it needs are
       variables that it makes then, with equal values on every rank;
    2. gets the means of the gradients over all ranks, the same everywhere, in the order of the variables, and updates
       them: `apply`. It is compiled as a part of the step, and so holds no step's number in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Optimiser(Protocol):
    """What updates variables."""

    def apply(self, tf: Any, gradients: Sequence[Any]) -> None:
        """One update, from one gradient a variable."""


class Make(Protocol):
    """What a row of the registry `optimisers` points to."""

    def __call__(self, tf: Any, variables: Sequence[Any], learning_rate: float) -> Optimiser:
        """The optimiser of a model's trainable variables."""


class Sgd:
    """Stochastic gradient descent: variable -= learning rate x gradient."""

    def __init__(self, tf: Any, variables: Sequence[Any], learning_rate: float) -> None:
        self._variables = variables
        self._learning_rate = learning_rate

    def apply(self, tf: Any, gradients: Sequence[Any]) -> None:
        """See the contract."""
        for variable, gradient in zip(self._variables, gradients, strict=True):
            variable.assign_sub(self._learning_rate * gradient)
