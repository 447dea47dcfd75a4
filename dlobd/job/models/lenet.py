"""LeNet as in Caffe's MNIST example (examples/mnist/lenet_train_test.prototxt); 431,080 parameters on MNIST.

Two convolutions of 20 and 50 filters of 5x5, each followed by max-pooling of 2x2, then 500 units with a ReLU and the
classes. It follows LeCun et al., Gradient-based learning applied to document recognition (1998); their LeNet-5 is
smaller and has sigmoids. Caffe's fillers: `xavier` for weights, zero for biases. Images are in [0, 1]; in Caffe, they
are in [0, 255/256].

The example's settings: learning rate 0.01, momentum 0.9, weight decay 0.0005, batch 64; its policy `inv`
(0.01 x (1 + 0.0001 k)^-0.75) has no counterpart here. Caffe uses twice the rate for biases, and decays them.
"""

from typing import Any


def build(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    from dlobd.job.models import layers
    from dlobd.job.models.layers import Convolution, Dense

    image = height, width, channels = layers.image_of(image_shape)
    values = 50 * _side(height) * _side(width)
    initial = layers.Initial(seed)
    return layers.Chain(
        "lenet",
        layers.scaled(1, 0, image),
        Convolution("conv1", channels, 20, 5, initial.xavier, padding="VALID"),
        layers.max_pool(2, 2, "VALID"),
        Convolution("conv2", 20, 50, 5, initial.xavier, padding="VALID"),
        layers.max_pool(2, 2, "VALID"),
        layers.flat,
        Dense("ip1", values, 500, initial.xavier),
        layers.relu,
        Dense("ip2", 500, classes, initial.xavier),
    )


def _side(size: int) -> int:
    # the size after both convolutions and poolings
    return ((size - 4) // 2 - 4) // 2
