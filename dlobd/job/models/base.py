"""The model contract.

A model is a function, `build`. It
    1. is called inside the scope of the trainer's exchange, on every rank, with the same arguments;
    2. makes equal initial values on every rank: they depend on the seed only;
    3. returns a tf.Module that maps images to logits; loss, optimiser and loop belong to `dlobd.job.training`. Its
       `variables` are its whole state. Its `trainable_variables` receive gradients, and weight decay if they have two
       or more dimensions;
    4. is called with `training=True` in steps, and without it in evaluations and in the saved model;
    5. makes its variables by `layers.variable`, so that the updated value of any replica is valid;
    6. does not update variables in a call. State that follows the batches, such as batch normalisation's moving
       statistics, is in a submodule that implements `FollowsBatches`: the step exchanges the statistics of a batch
       together with the gradients, so that the state is equal on all ranks.
"""

from typing import Any, Protocol, runtime_checkable


class Build(Protocol):
    """Factory of a model; a row of the registry `models` names it."""

    def __call__(self, image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
        """Build a tf.Module, called with `(images, training=False)`.

        It maps float32 images [n, *image_shape] to float32 logits [n, classes]. Images with dtype uint8 in the data set
        are scaled to [0, 1]."""


@runtime_checkable
class FollowsBatches(Protocol):
    """A submodule of a model with moving statistics; see `dlobd.job.models.layers.BatchNorm`."""

    def take_batch_statistics(self) -> tuple[Any, Any]:
        """Return mean and variance of this rank's batch as tensors, once after each training call."""

    def update_moving_statistics(self, mean: Any, variance: Any) -> None:
        """Move the statistics towards the batch statistics, which are averages over all ranks."""


def following_batches(model: Any) -> list[FollowsBatches]:
    """Return the submodules with moving statistics, in TensorFlow's order, which is equal on all ranks."""
    return [module for module in (model, *model.submodules) if isinstance(module, FollowsBatches)]
