"""AlexNet for CIFAR-10, as in tf_cnn_benchmarks (model alexnet, data set cifar10); 1,756,426 parameters.

It is the network of TensorFlow's first CIFAR-10 tutorial, which follows Krizhevsky's cuda-convnet: two convolutions of
64 filters of 5x5 with local response normalisation and max-pooling of 3x3 by 2, then 384 and 192 units. It is far
smaller than the AlexNet of ImageNet, and one dense layer has 90 % of its parameters.
Initial weights are truncated Gaussians of deviation 0.05 (convolutions) and 0.04 (dense), and Glorot's values in the
last layer; biases are 0, 0.1, 0.1, 0.1 and 0. Images are scaled to -1 to 1, and are not cropped or flipped.

Settings in tf_cnn_benchmarks: learning rate 0.1, divided by 10 every 100 epochs, plain gradient descent, weight decay
0.00004, batch 128.
"""

from typing import Any


def build(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    import tensorflow as tf

    from dlobd.job.models import layers
    from dlobd.job.models.layers import Convolution, Dense

    def normalised(values: Any, training: bool) -> Any:
        """Normalise each value by the values of four channels on both sides (local response normalisation)."""
        return tf.nn.local_response_normalization(values, depth_radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)

    image = height, width, channels = layers.image_of(image_shape)
    values = 64 * layers.halved(height, 2) * layers.halved(width, 2)
    initial = layers.Initial(seed)
    return layers.Chain(
        "alexnet_cifar",
        layers.scaled(2, -1, image),
        Convolution("conv1", channels, 64, 5, initial.truncated_normal(0.05)),
        layers.relu,
        layers.max_pool(3, 2),
        normalised,
        Convolution("conv2", 64, 64, 5, initial.truncated_normal(0.05), bias=0.1),
        layers.relu,
        normalised,
        layers.max_pool(3, 2),
        layers.flat,
        Dense("fc3", values, 384, initial.truncated_normal(0.04), bias=0.1),
        layers.relu,
        Dense("fc4", 384, 192, initial.truncated_normal(0.04), bias=0.1),
        layers.relu,
        Dense("logits", 192, classes, initial.glorot),
    )
