"""Multi-layer perceptron with one hidden layer of 128 ReLU units; 101,770 parameters on MNIST.

It is the network of TensorFlowOnSpark's first MNIST example (hidden_units = 128, batch 100) and of TensorFlow's
beginner tutorial. Initial weights are He's and Glorot's values; biases are zero, as in the example.

Recommended settings for plain gradient descent: learning rate 0.1, momentum 0, weight decay 0, batch 100. The example
itself uses Adagrad with learning rate 0.01.
"""

import math
from typing import Any

HIDDEN_UNITS = 128


def build(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    from dlobd.job.models import layers

    initial = layers.Initial(seed)
    return layers.Chain(
        "mlp",
        layers.flat,
        layers.Dense("hidden", math.prod(image_shape), HIDDEN_UNITS, initial.he),
        layers.relu,
        layers.Dense("logits", HIDDEN_UNITS, classes, initial.glorot),
    )
