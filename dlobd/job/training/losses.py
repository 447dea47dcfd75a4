"""The loss contract, and its members.

A loss is a function of TensorFlow, logits and labels. It gives the mean over the batch as a scalar: all ranks have
batches of one size, so that the mean of their losses is that of the global batch.
"""

from __future__ import annotations

from typing import Any, Protocol


class Loss(Protocol):
    """What a row of the registry `losses` points to."""

    def __call__(self, tf: Any, logits: Any, labels: Any) -> Any:
        """A scalar, of float32 logits [n, classes] and int32 labels [n]."""


def softmax_cross_entropy(tf: Any, logits: Any, labels: Any) -> Any:
    """Of the softmax of the logits, against the one right class."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
