"""Losses, optimisers and schedules of the learning rate, and their contracts.

A loss is a function of TensorFlow, logits and labels. It returns the mean over the batch as a scalar: all ranks have
batches of equal size, so the mean of their losses is the loss of the global batch.

An optimiser
    1. is made once in each rank, inside the exchange's scope, after the model (`Make`). It then creates its state:
       variables with equal values on all ranks;
    2. updates the variables (`apply`) from the gradients' means over all ranks, which are equal on all ranks and in the
       order of the variables. `apply` is compiled as a part of the step, so it must not count steps in Python: it gets
       the learning rate of the step as a tensor. The gradients include weight decay (`dlobd.job.training.step`).

A schedule is a function of TensorFlow, the job and the number of the step, from 0. The number is an int64 tensor, not a
Python number: a schedule is compiled as a part of the step. Epochs are rounded down to steps, as in tf_cnn_benchmarks.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from dlobd.job.description import Job
from dlobd.network.exchanges.base import Tensor, TensorFlow


class Loss(Protocol):
    """Loss function; a row of the registry `losses` names it."""

    def __call__(self, tf: TensorFlow, logits: Tensor, labels: Tensor) -> Tensor:
        """Return a scalar from float32 logits [n, classes] and int32 labels [n]."""


def softmax_cross_entropy(tf: TensorFlow, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy between the labels and the softmax of the logits."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


class Optimiser(Protocol):
    """Optimiser of a model's variables."""

    def apply(self, tf: TensorFlow, gradients: Sequence[Tensor], learning_rate: Tensor) -> None: ...


class Make(Protocol):
    """Factory of an optimiser; a row of the registry `optimisers` names it."""

    def __call__(self, tf: TensorFlow, variables: Sequence[Tensor], job: Job) -> Optimiser: ...


class Sgd:
    """Stochastic gradient descent: variable -= learning rate x gradient."""

    def __init__(self, tf: TensorFlow, variables: Sequence[Tensor], job: Job) -> None:
        self._variables = variables

    def apply(self, tf: TensorFlow, gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for variable, gradient in zip(self._variables, gradients, strict=True):
            variable.assign_sub(learning_rate * gradient)


class Momentum:
    """Heavy-ball momentum: velocity = momentum x velocity + gradient, variable -= learning rate x velocity.

    The velocity is defined as in TensorFlow. Caffe's velocity includes the learning rate; both definitions are
    equivalent if the rate is constant."""

    def __init__(self, tf: TensorFlow, variables: Sequence[Tensor], job: Job) -> None:
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self._variables = variables
        self._momentum = job.momentum
        self._velocities = [
            tf.Variable(tf.zeros(variable.shape), trainable=False, aggregation=first, name="velocity")
            for variable in variables
        ]

    def apply(self, tf: TensorFlow, gradients: Sequence[Tensor], learning_rate: Tensor) -> None:
        for variable, velocity, gradient in zip(self._variables, self._velocities, gradients, strict=True):
            new_velocity = self._momentum * velocity + gradient
            velocity.assign(new_velocity)
            variable.assign_sub(learning_rate * new_velocity)


class Schedule(Protocol):
    """Function of the learning rate; a row of the registry `schedules` names it."""

    def __call__(self, tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
        """Return the learning rate of a step, a float32 scalar."""


def constant(tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
    """Return the job's learning rate."""
    return tf.constant(job.learning_rate, tf.float32)


def step(tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
    """Multiply the job's learning rate by learning_rate_decay_factor after every num_epochs_per_decay epochs.

    It equals the schedule of tf_cnn_benchmarks with flags of these names. Epochs count from the start of the warm-up.
    """
    decays = step // max(1, _steps(job, job.num_epochs_per_decay))
    return job.learning_rate * tf.pow(job.learning_rate_decay_factor, tf.cast(decays, tf.float32))


def cosine(tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
    """Lower the job's learning rate along half a cosine, from the end of the warm-up to 0 at the end of training.

    Source: Loshchilov and Hutter, SGDR (2017), equation 5, without restarts and with 0 as the minimum.
    """
    warmup = _steps(job, job.warmup_epochs)
    progress = tf.cast(step - warmup, tf.float32) / float(job.steps - warmup)
    return job.learning_rate / 2 * (1 + tf.cos(math.pi * progress))


def learning_rate(tf: TensorFlow, job: Job, schedule: Schedule, step: Tensor) -> Tensor:
    """Return the schedule's learning rate; during the warm-up, raise it linearly to the job's learning rate.

    Source: Goyal et al., Accurate, Large Minibatch SGD (2017), section 2.2. The rate of the first step is the first
    increment, not 0."""
    scheduled = schedule(tf, job, step)
    warmup = _steps(job, job.warmup_epochs)
    if not warmup:
        return scheduled
    rising = job.learning_rate / warmup * tf.cast(step + 1, tf.float32)
    return tf.where(step < warmup, rising, scheduled)


def _steps(job: Job, epochs: float) -> int:
    return int(epochs * job.steps_per_epoch)
