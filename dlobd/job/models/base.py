"""The model contract.

A model is one function, `build`. It
    1. is called inside the trainer's `tf.distribute` scope, on every rank, with the same arguments;
    2. gives every rank equal initial values: they depend on the seed alone;
    3. returns a tf.Module that maps images to logits only: loss, optimiser and loop are the workload's;
    4. makes its variables so that an update computed from reduced gradients may be taken from any replica.
"""

from __future__ import annotations

from typing import Any, Protocol


class Build(Protocol):
    """What a row of the registry `models` points to."""

    def __call__(self, image_values: int, classes: int, seed: int) -> Any:
        """A tf.Module: float32 images [n, image_values] in [0, 1] -> float32 logits [n, classes]."""
