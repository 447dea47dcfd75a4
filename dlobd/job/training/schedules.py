"""Contract and members of learning-rate schedules, and the warm-up that any of them may follow.

A schedule is a function of TensorFlow, the job and the number of the step, from 0. The number is an int64 tensor, not a
Python number: a schedule is compiled as a part of the step. Epochs are rounded down to steps, as in tf_cnn_benchmarks.
"""

from __future__ import annotations

import math
from typing import Protocol

from dlobd.job.description import Job
from dlobd.network.exchanges.base import Tensor, TensorFlow


class Schedule(Protocol):
    """Object of a row of the registry `schedules`."""

    def __call__(self, tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
        """Return the learning rate of a step, a float32 scalar."""


def constant(tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
    """Return the job's learning rate."""
    return tf.constant(job.learning_rate, tf.float32)


def step(tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
    """Multiply the job's learning rate by learning_rate_decay_factor after every num_epochs_per_decay epochs.

    It equals tf_cnn_benchmarks with flags of these names; epochs count from the start, warm-up included.
    """
    decays = step // max(1, _steps(job, job.num_epochs_per_decay))
    return job.learning_rate * tf.pow(job.learning_rate_decay_factor, tf.cast(decays, tf.float32))


def cosine(tf: TensorFlow, job: Job, step: Tensor) -> Tensor:
    """Lower the job's learning rate to 0 at the end, by half a cosine that begins after the warm-up.

    Loshchilov and Hutter, SGDR (2017), equation 5, without restarts and with 0 as the minimum.
    """
    warmup = _steps(job, job.warmup_epochs)
    progress = tf.cast(step - warmup, tf.float32) / float(job.steps - warmup)
    return job.learning_rate / 2 * (1 + tf.cos(math.pi * progress))


def learning_rate(tf: TensorFlow, job: Job, schedule: Schedule, step: Tensor) -> Tensor:
    """Return the schedule's learning rate; during the warm-up, a linear rise to the job's learning rate.

    Goyal et al., Accurate, Large Minibatch SGD (2017), section 2.2. The first step has the first increment, not 0."""
    scheduled = schedule(tf, job, step)
    warmup = _steps(job, job.warmup_epochs)
    if not warmup:
        return scheduled
    rising = job.learning_rate / warmup * tf.cast(step + 1, tf.float32)
    return tf.where(step < warmup, rising, scheduled)


def _steps(job: Job, epochs: float) -> int:
    return int(epochs * job.steps_per_epoch)
