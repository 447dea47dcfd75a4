"""The model contract.

A model is one function, `build`. It
    1. is called inside the trainer's `tf.distribute` scope, on every rank, with the same arguments;
    2. gives every rank equal initial values: they depend on the seed alone;
    3. returns a tf.Module that maps images to logits only: loss, optimiser and loop are the workload's
       (`dlobd.job.training`). Its `variables` are all that has to be stored, its `trainable_variables` get gradients;
    4. is called with `training=True` in steps, and without it where it is evaluated and saved;
    5. makes its variables so that an update computed from reduced gradients may be taken from any replica.
"""

from __future__ import annotations

from typing import Any, Protocol


class Build(Protocol):
    """What a row of the registry `models` points to."""

    def __call__(self, image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
        """A tf.Module: `(images, training=False)`, float32 images [n, *image_shape] -> float32 logits [n, classes].

        Of a data set of bytes, images are in [0, 1]."""
