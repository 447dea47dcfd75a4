"""Residual networks for CIFAR-10: He et al., Deep residual learning for image recognition (2015), section 4.2.

    resnet20    269,722 parameters (0.27 M in the paper), n = 3
    resnet56    853,018 parameters (0.85 M in the paper), n = 9

A convolution of 16 filters, then three groups of n blocks with 16, 32 and 64 filters, each block of two convolutions of
3x3; the mean over the image, and the classes: 6n + 2 layers with weights. Batch normalisation follows each convolution,
before the ReLU. At the start of a group with stride 2, the shortcut takes every second pixel and pads channels with
zeros (option A): it has no parameters. Initial weights are He's values. Images are scaled to -1 to 1; the paper instead
subtracts the mean image, and crops and flips. The moving statistics, 1,376 and 4,064 values, do not count as
parameters.

The paper's settings: learning rate 0.1, divided by 10 after 32,000 and 48,000 of 64,000 steps, momentum 0.9, weight
decay 0.0001, batch 128 (over two GPUs). tf_cnn_benchmarks has the same rate and batch, and decays at epochs 82 and 123.
"""

from typing import Any


def resnet20(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    return _build("resnet20", 3, image_shape, classes, seed)


def resnet56(image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build the model; see `dlobd.job.models.base.Build`."""
    return _build("resnet56", 9, image_shape, classes, seed)


def _build(name: str, blocks: int, image_shape: tuple[int, ...], classes: int, seed: int) -> Any:
    import tensorflow as tf

    from dlobd.job.models import layers
    from dlobd.job.models.layers import BatchNorm, Chain, Convolution, Dense

    initial = layers.Initial(seed)

    def convolution(name: str, channels_in: int, channels_out: int, stride: int = 1) -> Chain:
        # padded by one pixel on each side also for stride 2, so that its pixels match the shortcut's pixels
        filters = Convolution(name, channels_in, channels_out, 3, initial.he, stride, padding=1, bias=None)
        return Chain(name, filters, BatchNorm(f"{name}_norm", channels_out))

    class Block(tf.Module):  # type: ignore[misc]
        """Residual block: two convolutions and the shortcut around them."""

        def __init__(self, name: str, channels_in: int, channels_out: int) -> None:
            super().__init__(name=name)
            self._stride = 1 if channels_in == channels_out else 2
            self._added = channels_out - channels_in
            self.first = convolution(f"{name}_a", channels_in, channels_out, self._stride)
            self.second = convolution(f"{name}_b", channels_out, channels_out)

        def __call__(self, images: Any, training: bool = False) -> Any:
            residual = self.second(tf.nn.relu(self.first(images, training)), training)
            shortcut = images
            if self._added:
                every = images[:, :: self._stride, :: self._stride]
                shortcut = tf.pad(every, [[0, 0], [0, 0], [0, 0], [self._added // 2, self._added // 2]])
            return tf.nn.relu(residual + shortcut)

    image = layers.image_of(image_shape)
    body: list[Any] = []
    channels = 16
    for group, filters in enumerate((16, 32, 64), 2):
        for k in range(1, blocks + 1):
            body.append(Block(f"conv{group}_{k}", channels, filters))
            channels = filters
    return Chain(
        name,
        layers.scaled(2, -1, image),
        convolution("conv1", image[2], 16),
        layers.relu,
        *body,
        layers.spatial_mean,
        Dense("logits", channels, classes, initial.he),
    )
