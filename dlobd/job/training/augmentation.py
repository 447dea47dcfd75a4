"""Augmentations, and their contract.

An augmentation
    1. is a pure function of a batch of training images, the batch's ID, the seed and the step. It does not depend on
       the rank, because Spark may feed a file to any rank. Its random numbers come from stateless operations with the
       algorithm Philox: values are equal in eager mode and in a tf.data pipeline, on a CPU and on a GPU;
    2. preserves shape and type of the images.
"""

from typing import Protocol

from dlobd.network.exchanges.base import Tensor, TensorFlow

PAD = 4  # black pixels on each side of an image before the crop


class Augment(Protocol):
    """Function that changes training images; a row of the registry `augmentations` names it."""

    def __call__(self, tf: TensorFlow, images: Tensor, seed: int, batch: Tensor, step: Tensor) -> Tensor:
        """Return the augmented images; their labels are unchanged.

        Args:
            images: float32, [n, height, width] or [n, height, width, channels].
            batch: an ID that differs between the ranks' batches, below 2 ** 32: a number or a scalar tensor.
            step: step of this rank, from 0: a number or a scalar tensor.
        """


def flip_crop(tf: TensorFlow, images: Tensor, seed: int, batch: Tensor, step: Tensor) -> Tensor:
    """Crop each padded image at random, and flip half of them left to right, at random (He et al. 2015)."""
    samples, height, width = tf.unstack(tf.shape(images)[:3])

    def draw(number: int, below: int) -> Tensor:
        # every draw of a job has a unique seed: batch, step and number of the draw use separate digits of it
        seeds = tf.stack([tf.cast(batch, tf.int64) * (1 << 31) + seed, tf.cast(step, tf.int64) * 3 + number])
        return tf.random.stateless_uniform([samples, 1], seeds, 0, below, tf.int32, alg="philox")

    top, left, flipped = draw(0, 2 * PAD + 1), draw(1, 2 * PAD + 1), draw(2, 2)
    rows = top + tf.range(height)
    columns = left + tf.where(flipped == 1, tf.range(width - 1, -1, -1), tf.range(width))
    padded = tf.pad(images, [[0, 0], [PAD, PAD], [PAD, PAD], *[[0, 0]] * (len(images.shape) - 3)])
    cropped = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.ensure_shape(tf.gather(cropped, columns, axis=2, batch_dims=1), images.shape)
