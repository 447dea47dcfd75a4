"""SoftMax regression: logits = images W + b; 7,850 parameters on MNIST. It is the usual first example for MNIST."""

import math
from typing import Any


def build(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`. The weights start at zero, because the loss is convex."""
    import tensorflow as tf

    values = math.prod(image_shape)

    class SoftmaxRegression(tf.Module):  # type: ignore[misc]  # defined here, because TensorFlow is imported late
        def __init__(self) -> None:
            super().__init__(name="softmax_regression")
            # every rank applies the same reduced gradient, so the first replica's value is valid
            first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            self.weights = tf.Variable(tf.zeros([values, classes]), aggregation=first, name="weights")
            self.bias = tf.Variable(tf.zeros([classes]), aggregation=first, name="bias")

        def __call__(self, images: Any, training: bool = False) -> Any:
            return tf.matmul(tf.reshape(images, [-1, values]), self.weights) + self.bias

    return SoftmaxRegression()
