"""VGG-16 for CIFAR-10, with batch normalisation; 14,986,698 parameters, whose gradients are 60 MB per step.

Configuration D of Simonyan and Zisserman, Very deep convolutional networks (2014): 13 convolutions of 3x3 in five
groups of 64, 128, 256, 512 and 512 filters, each group max-pooled 2x2. Differences from the paper, as is common for
32x32 images: batch normalisation follows each convolution, which then has no bias; five poolings leave one pixel, so
that a dense layer of 512 units replaces two layers of 4096; there is no dropout. Initial weights are He's values,
because a network of this depth does not train from the paper's Gaussians of deviation 0.01. Images are scaled to -1 to
1, and are not cropped or flipped.

The paper's settings: learning rate 0.01, divided by 10 whenever the validation accuracy stops improving, momentum 0.9,
weight decay 0.0005, batch 256. tf_cnn_benchmarks has batch 64 and a learning rate of 0.005 for VGG-16 on ImageNet.
"""

from typing import Any

GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Numbers of filters and of convolutions of each group."""

UNITS = 512


def build(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    from dlobd.job.models import layers
    from dlobd.job.models.layers import BatchNorm, Convolution, Dense

    image = height, width, channels = layers.image_of(image_shape)
    values = GROUPS[-1][0] * layers.halved(height, len(GROUPS)) * layers.halved(width, len(GROUPS))
    initial = layers.Initial(seed)
    body: list[layers.Layer] = []
    for group, (filters, convolutions) in enumerate(GROUPS, 1):
        for k in range(1, convolutions + 1):
            body.append(Convolution(f"conv{group}_{k}", channels, filters, 3, initial.he, bias=None))
            body += [BatchNorm(f"norm{group}_{k}", filters), layers.relu]
            channels = filters
        body.append(layers.max_pool(2, 2))
    return layers.Chain(
        "vgg16_cifar",
        layers.scaled(2, -1, image),
        *body,
        layers.flat,
        Dense("fc", values, UNITS, initial.he),
        layers.relu,
        Dense("logits", UNITS, classes, initial.glorot),
    )
