"""CIFAR-10 Quick, Caffe's example (examples/cifar10/cifar10_quick_train_test.prototxt); 145,578 parameters.

Three convolutions of 5x5 with 32, 32 and 64 filters. Each convolution is pooled 3x3 with stride 2: the first by the
maximum, before the ReLU; the second and third by the mean, after the ReLU. Then 64 linear units and the classes. The
CaffeOnSpark figures of the DLoBD papers use this model. Caffe's fillers: Gaussians of deviation 0.0001, 0.01, 0.01, 0.1
and 0.1, zero for biases. They are meant for images of 0 to 255 minus the mean image, so images are scaled to -127.5 ..
127.5.

The example's settings: learning rate 0.001, momentum 0.9, weight decay 0.004, batch 100; the learning rate is divided
by 10 after 8 epochs. Caffe uses twice the rate for biases, and decays them.
"""

from typing import Any


def build(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    from dlobd.job.models import layers
    from dlobd.job.models.layers import Convolution, Dense

    image = height, width, channels = layers.image_of(image_shape)
    values = 64 * layers.halved(height, 3) * layers.halved(width, 3)
    initial = layers.Initial(seed)
    return layers.Chain(
        "cifar10_quick",
        layers.scaled(255, -127.5, image),
        Convolution("conv1", channels, 32, 5, initial.normal(0.0001)),
        layers.max_pool(3, 2),
        layers.relu,
        Convolution("conv2", 32, 32, 5, initial.normal(0.01)),
        layers.relu,
        layers.mean_pool(3, 2),
        Convolution("conv3", 32, 64, 5, initial.normal(0.01)),
        layers.relu,
        layers.mean_pool(3, 2),
        layers.flat,
        Dense("ip1", values, 64, initial.normal(0.1)),
        Dense("ip2", 64, classes, initial.normal(0.1)),
    )
