"""Generates images of any shape and number, which are equal for equal seeds on any machine.

An image is the pattern of its class plus noise, so that a model can learn and its loss falls. A pattern is coarse, at
most 8 cells along an axis: convolutions and dense layers can learn it, and 1,000 patterns need little memory.

    pattern of class c       uniform in 0 .. 127, by cells
    image, and its label     pattern[label] + noise, uniform in 0 .. 127; the label is uniform

All random numbers are words of numpy's Philox, a counter-based generator whose algorithm defines its output: the key is
(seed, stream), and each chunk of samples has its own counter. So any process can generate any chunk separately.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dlobd.job.datasets.base import Order, Samples, Split
from dlobd.schema import Experiment

CHUNK_BYTES = 1 << 20
"""Approximate size of a chunk of images. The random numbers of a sample depend on it."""

CELLS = 8
"""Largest number of cells of a pattern along an axis."""

MAX_DIMENSIONS = 4
MAX_IMAGE_BYTES = 64 << 20

_STREAMS = {"train": 0, "test": 1, "patterns": 2}


class Synthetic:
    """Generated data set with the experiment's number of samples."""

    name: ClassVar[str] = "synthetic"
    dtype: ClassVar[str] = "uint8"
    permutes: ClassVar[bool] = False
    anywhere: ClassVar[bool] = True

    def __init__(self, shape: tuple[int, ...], classes: int, train_size: int, test_size: int, seed: int) -> None:
        self.shape = shape
        self.classes = classes
        self.train_size = train_size
        self.test_size = test_size
        self._seed = seed
        self._chunk_samples = max(1, CHUNK_BYTES // math.prod(shape))
        self._cells: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """Make the data set with the experiment's shape, classes, sizes and seed."""
        e = experiment
        return cls(shape_of(e.synthetic_shape), e.synthetic_classes, e.train_samples, e.test_samples, e.seed)

    def files(self) -> list[Path]:
        return []

    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        """See `dlobd.job.datasets.base.Dataset`. Consecutive positions are fast, other orders are slow."""
        number, chunk = -1, (np.empty(0, np.uint8), np.empty(0, np.int64))
        for begin in range(0, len(order), samples):
            positions = np.asarray(order[begin : begin + samples])
            images, labels = np.empty((len(positions), *self.shape), np.uint8), np.empty(len(positions), np.int64)
            chunk_numbers = positions // self._chunk_samples
            cuts = np.flatnonzero(np.diff(chunk_numbers)) + 1
            for part in np.split(np.arange(len(positions)), cuts):
                if chunk_numbers[part[0]] != number:
                    number = int(chunk_numbers[part[0]])
                    chunk = self._chunk(split, number)
                within = positions[part] % self._chunk_samples
                images[part], labels[part] = chunk[0][within], chunk[1][within]
            yield images, labels

    def _chunk(self, split: Split, number: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        n = self._chunk_samples
        random = self._words(split, number, n + -(-n * math.prod(self.shape) // 8))
        labels = (random[:n] % np.uint64(self.classes)).astype(np.int64)
        noise = _bytes(random[n:])[: n * math.prod(self.shape)].reshape(n, *self.shape)
        images = self._patterns(labels)
        images += noise >> np.uint8(1)
        return images, labels

    def _patterns(self, labels: NDArray[np.int64]) -> NDArray[np.uint8]:
        coarse = [min(size, CELLS) for size in self.shape]
        if self._cells is None:
            values = self.classes * math.prod(coarse)
            cells = _bytes(self._words("patterns", 0, -(-values // 8)))[:values]
            self._cells = (cells >> np.uint8(1)).reshape(self.classes, *coarse)
        patterns: NDArray[np.uint8] = self._cells[labels]
        for axis, (size, cells_here) in enumerate(zip(self.shape, coarse, strict=True), 1):
            if size > cells_here:
                patterns = patterns.take(np.arange(size) * cells_here // size, axis=axis)
        return patterns

    def _words(self, stream: str, number: int, count: int) -> NDArray[np.uint64]:
        """Return random words. The chunk's number is the counter's upper half, so chunks never share words."""
        generator = np.random.Philox(key=[self._seed, _STREAMS[stream]], counter=[0, 0, number, 0])
        words: NDArray[np.uint64] = generator.random_raw(count)
        return words


def shape_of(text: str) -> tuple[int, ...]:
    """Parse a shape such as "32x32x3". Raises ValueError, in one line, for other texts and for too large images."""
    sizes = text.split("x")
    if len(sizes) > MAX_DIMENSIONS or not all(re.fullmatch(r"[1-9][0-9]{0,8}", size) for size in sizes):
        raise ValueError(f"synthetic_shape must be 1 to {MAX_DIMENSIONS} positive sizes, as in 32x32x3, not {text!r}.")
    shape = tuple(map(int, sizes))
    if (size := math.prod(shape)) > MAX_IMAGE_BYTES:
        raise ValueError(f"synthetic_shape {text} has {size} values, more than {MAX_IMAGE_BYTES}.")
    return shape


def _bytes(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    # little-endian on any machine
    return words.astype("<u8", copy=False).view(np.uint8)
