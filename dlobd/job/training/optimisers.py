"""The optimiser contract, and its members.

An optimiser
    1. is made once in each rank, inside the exchange's scope, after the model: `Make`. State that it needs are
       variables that it makes then, with equal values on every rank;
    2. gets the means of the gradients over all ranks, the same everywhere, in the order of the variables, and updates
       them: `apply`. It is compiled as a part of the step, and so holds no step's number in Python: the learning rate
       of the step is a tensor. What weight decay adds is in the gradients already (`dlobd.job.training.update`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dlobd.job.description import Job


class Optimiser(Protocol):
    """What updates variables."""

    def apply(self, tf: Any, gradients: Sequence[Any], learning_rate: Any) -> None:
        """One update, from one gradient a variable."""


class Make(Protocol):
    """What a row of the registry `optimisers` points to."""

    def __call__(self, tf: Any, variables: Sequence[Any], job: Job) -> Optimiser:
        """The optimiser of a model's trainable variables, with the job's settings."""


class Sgd:
    """Stochastic gradient descent: variable -= learning rate x gradient."""

    def __init__(self, tf: Any, variables: Sequence[Any], job: Job) -> None:
        self._variables = variables

    def apply(self, tf: Any, gradients: Sequence[Any], learning_rate: Any) -> None:
        """See the contract."""
        for variable, gradient in zip(self._variables, gradients, strict=True):
            variable.assign_sub(learning_rate * gradient)


class Momentum:
    """The heavy ball: velocity = momentum x velocity + gradient, variable -= learning rate x velocity.

    As TensorFlow has it; Caffe's velocity holds the learning rate, which is the same while that is constant."""

    def __init__(self, tf: Any, variables: Sequence[Any], job: Job) -> None:
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self._variables = variables
        self._momentum = job.momentum
        self._velocities = [
            tf.Variable(tf.zeros(variable.shape), trainable=False, aggregation=first, name="velocity")
            for variable in variables
        ]

    def apply(self, tf: Any, gradients: Sequence[Any], learning_rate: Any) -> None:
        """See the contract."""
        for variable, velocity, gradient in zip(self._variables, self._velocities, gradients, strict=True):
            now = self._momentum * velocity + gradient
            velocity.assign(now)
            variable.assign_sub(learning_rate * now)
