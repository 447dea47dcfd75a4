"""The model contract.

A model is one function, `build`. It
    1. is called inside the trainer's `tf.distribute` scope, on every rank, with the same arguments;
    2. gives every rank equal initial values: they depend on the seed alone;
    3. returns a tf.Module that maps images to logits only: loss, optimiser and loop are the workload's
       (`dlobd.job.training`). Its `variables` are all that has to be stored, its `trainable_variables` get gradients,
       and those of two or more dimensions weight decay;
    4. is called with `training=True` in steps, and without it where it is evaluated and saved;
    5. makes its variables so that an update computed from reduced gradients may be taken from any replica;
    6. does not update variables in a call. What follows the batches, as batch normalisation's moving statistics do, is
       a submodule after `FollowsBatches`: the step exchanges what it says of a batch together with the gradients, so
       that it stays equal on all ranks.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class Build(Protocol):
    """What a row of the registry `models` points to."""

    def __call__(self, image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
        """A tf.Module: `(images, training=False)`, float32 images [n, *image_shape] -> float32 logits [n, classes].

        Of a data set of bytes, images are in [0, 1]."""


@runtime_checkable
class FollowsBatches(Protocol):
    """A submodule of a model with moving statistics; see `dlobd.job.models.layers.BatchNorm`."""

    def take_batch_statistics(self) -> tuple[Any, Any]:
        """Mean and variance of this rank's batch, as tensors, once after each training call. A step traces both."""

    def update_moving_statistics(self, mean: Any, variance: Any) -> None:
        """Moves towards what all ranks have equally: the means over the ranks of what each of them took."""


def following_batches(model: Any) -> list[FollowsBatches]:
    """The submodules with moving statistics, in TensorFlow's order, which is the same on every rank."""
    return [module for module in (model, *model.submodules) if isinstance(module, FollowsBatches)]
