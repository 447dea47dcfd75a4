"""SoftMax regression: logits = images W + b. 7,850 parameters on MNIST, the classic first model of both."""

from __future__ import annotations

from typing import Any


def build(image_values: int, classes: int, seed: int) -> Any:
    """A tf.Module whose call maps float32 images [n, image_values] to logits [n, classes]. `seed` is not needed here:
    the weights start at zero, which is a fixed and sound start for a convex loss."""
    import tensorflow as tf

    class SoftmaxRegression(tf.Module):  # type: ignore[misc]  # defined here: TensorFlow is imported late
        def __init__(self) -> None:
            super().__init__(name="softmax_regression")
            # every rank applies the same reduced gradient, so the first replica's update is everybody's
            first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            self.weights = tf.Variable(tf.zeros([image_values, classes]), aggregation=first, name="weights")
            self.bias = tf.Variable(tf.zeros([classes]), aggregation=first, name="bias")

        def __call__(self, images: Any) -> Any:
            return tf.matmul(images, self.weights) + self.bias

    return SoftmaxRegression()
