"""Layers of models, from TensorFlow's own operations, because the import of Keras takes seconds.

This module imports TensorFlow, so `build` imports it late. A layer is called like a model, with its input and
`training`; images are [n, height, width, channels].
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Shape = Sequence[int]
Values = Callable[[Shape], Any]
"""Function from a shape to initial values: [height, width, in, out] of a convolution, [in, out] of a dense layer."""

Layer = Callable[[Any, bool], Any]

MOVING_DECAY = 0.9
"""Decay of batch normalisation's moving statistics per step. MOVING_DECAY and EPSILON are the values of
tf_cnn_benchmarks for ResNet."""

EPSILON = 1e-5


class Initial:
    """Generator of random initial values, from the seed and the number of the call.

    The same build function and seed give equal values, in any process and on any device."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._calls = 0

    def _next(self) -> dict[str, Any]:
        self._calls += 1
        # explicit, because TensorFlow's default algorithm depends on the device
        return {"seed": [self._seed, self._calls], "alg": "philox"}

    def normal(self, deviation: float) -> Values:
        """Return a function that draws from a Gaussian around 0."""
        return lambda shape: tf.random.stateless_normal(shape, stddev=deviation, **self._next())

    def truncated_normal(self, deviation: float) -> Values:
        """Return a function that draws from a Gaussian around 0, truncated at two deviations."""
        return lambda shape: tf.random.stateless_truncated_normal(shape, stddev=deviation, **self._next())

    def he(self, shape: Shape) -> Any:
        """Draw from a Gaussian of variance 2 / inputs, for layers before a ReLU: He et al., arXiv 1502.01852."""
        return self.normal(math.sqrt(2 / _inputs(shape)))(shape)

    def glorot(self, shape: Shape) -> Any:
        """Draw uniformly with variance 2 / (inputs + outputs): Glorot and Bengio (2010)."""
        return self._uniform(shape, 2 / (_inputs(shape) + math.prod(shape[:-2]) * shape[-1]))

    def xavier(self, shape: Shape) -> Any:
        """Draw uniformly with variance 1 / inputs, as Caffe's filler of this name does by default."""
        return self._uniform(shape, 1 / _inputs(shape))

    def _uniform(self, shape: Shape, variance: float) -> Any:
        limit = math.sqrt(3 * variance)
        return tf.random.stateless_uniform(shape, minval=-limit, maxval=limit, **self._next())


def _inputs(shape: Shape) -> int:
    """Return the number of inputs to an output value (fan-in)."""
    return math.prod(shape[:-1])


def variable(values: Any, name: str, trainable: bool = True) -> Any:
    """Make a variable of a model: every rank applies the same update, so the first replica's value is valid."""
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(values, trainable=trainable, aggregation=first, name=name)


class Chain(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """Layers in sequence."""

    def __init__(self, name: str, *layers: Layer) -> None:
        super().__init__(name=name)
        self.layers = layers

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # AutoGraph takes a third of a deep model's first step
    def __call__(self, images: Any, training: bool = False) -> Any:
        values = images
        for layer in self.layers:
            values = layer(values, training)
        return values


class Convolution(tf.Module):  # type: ignore[misc]
    """Convolution with square filters.

    Args:
        padding: SAME, VALID, or the number of zeros on each side.
        bias: initial value of the bias; None for a layer without a bias, as before a batch normalisation.
    """

    def __init__(
        self,
        name: str,
        channels_in: int,
        channels_out: int,
        size: int,
        values: Values,
        stride: int = 1,
        padding: str | int = "SAME",
        bias: float | None = 0.0,
    ) -> None:
        super().__init__(name=name)
        self.weights = variable(values([size, size, channels_in, channels_out]), f"{name}/weights")
        self.bias = None if bias is None else variable(tf.fill([channels_out], bias), f"{name}/bias")
        self._stride = stride
        self._zeros = padding if isinstance(padding, int) else 0
        self._padding = "VALID" if isinstance(padding, int) else padding

    def __call__(self, images: Any, training: bool = False) -> Any:
        around = [self._zeros, self._zeros]
        padded = tf.pad(images, [[0, 0], around, around, [0, 0]]) if self._zeros else images
        values = tf.nn.conv2d(padded, self.weights, self._stride, self._padding)
        return values if self.bias is None else tf.nn.bias_add(values, self.bias)


class Dense(tf.Module):  # type: ignore[misc]
    """Fully connected layer: [n, inputs] -> [n, outputs]."""

    def __init__(self, name: str, inputs: int, outputs: int, values: Values, bias: float = 0.0) -> None:
        super().__init__(name=name)
        self.weights = variable(values([inputs, outputs]), f"{name}/weights")
        self.bias = variable(tf.fill([outputs], bias), f"{name}/bias")

    def __call__(self, values: Any, training: bool = False) -> Any:
        return tf.matmul(values, self.weights) + self.bias


class BatchNorm(tf.Module):  # type: ignore[misc]
    """Batch normalisation of each channel: Ioffe and Szegedy (2015), arXiv 1502.03167.

    A training call normalises with mean and variance of this rank's batch only. Other calls normalise with the moving
    statistics, which follow averages over the ranks. The average of the means is the mean of the global batch. The
    average of the variances is less than the variance of the global batch, because it excludes the differences between
    the ranks' means. The variance is unbiased, as in TensorFlow's fused operation and in Caffe.
    """

    def __init__(self, name: str, channels: int) -> None:
        super().__init__(name=name)
        self.scale = variable(tf.ones([channels]), f"{name}/scale")
        self.offset = variable(tf.zeros([channels]), f"{name}/offset")
        self.moving_mean = variable(tf.zeros([channels]), f"{name}/moving_mean", trainable=False)
        self.moving_variance = variable(tf.ones([channels]), f"{name}/moving_variance", trainable=False)
        self._of_batch: tuple[Any, Any] | None = None

    def __call__(self, images: Any, training: bool = False) -> Any:
        if not training:
            return tf.nn.batch_normalization(
                images, self.moving_mean, self.moving_variance, self.offset, self.scale, EPSILON
            )
        fused = tf.compat.v1.nn.fused_batch_norm
        values, *of_batch = fused(images, self.scale, self.offset, epsilon=EPSILON, is_training=True)
        self._of_batch = (of_batch[0], of_batch[1])
        return values

    def take_batch_statistics(self) -> tuple[Any, Any]:
        if self._of_batch is None:
            raise ValueError(f"{self.name} was not called with training=True")
        statistics, self._of_batch = self._of_batch, None  # a traced tensor is invalid after its trace
        return statistics

    def update_moving_statistics(self, mean: Any, variance: Any) -> None:
        for moving, current in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign_sub((1 - MOVING_DECAY) * (moving - current))


def relu(values: Any, training: bool = False) -> Any:
    """Return max(0, value)."""
    return tf.nn.relu(values)


def flat(values: Any, training: bool = False) -> Any:
    """Flatten [n, ...] to [n, values]."""
    return tf.reshape(values, [-1, math.prod(values.shape[1:])])


def spatial_mean(images: Any, training: bool = False) -> Any:
    """Average [n, height, width, channels] to [n, channels]."""
    return tf.reduce_mean(images, [1, 2])


def max_pool(size: int, stride: int, padding: str = "SAME") -> Layer:
    """Return a layer that takes the maximum of each square of side `size`."""
    return lambda images, training: tf.nn.max_pool2d(images, size, stride, padding)


def mean_pool(size: int, stride: int, padding: str = "SAME") -> Layer:
    """Return a layer that takes the mean of each square of side `size`, without the padding."""
    return lambda images, training: tf.nn.avg_pool2d(images, size, stride, padding)


def scaled(factor: float, offset: float, images: tuple[int, int, int]) -> Layer:
    """Return the first layer of a model: factor x value + offset, reshaped to have an axis for channels.

    Args:
        images: height, width and channels.
    """
    return lambda values, training: factor * tf.reshape(values, [-1, *images]) + offset


def image_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels of images; [height, width] has one channel.

    Raises ValueError if `shape` is not the shape of an image.
    """
    if len(shape) not in (2, 3):
        raise ValueError(f"convolutions need images of height x width x channels; this data set has shape {shape}")
    height, width, *channels = shape
    return height, width, channels[0] if channels else 1


def halved(size: int, times: int) -> int:
    """Return the size of an image side after `times` layers of stride 2, which round up."""
    return math.ceil(size / (1 << times))
