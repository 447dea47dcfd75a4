"""The data-set contract.

A data set
    1. knows its sizes without opening a file;
    2. names the files it is made of (`files`), so that they can be checked and staged;
    3. checks what it reads, each time, against published checksums;
    4. gives images and labels as they are (`load`): what a trainer does to them is the trainer's time.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "test"]


class Dataset(Protocol):
    """Images with one label each."""

    name: ClassVar[str]
    train_size: ClassVar[int]
    test_size: ClassVar[int]
    shape: ClassVar[tuple[int, ...]]
    """Of one image, of uint8."""
    classes: ClassVar[int]
    """Labels are 0 .. classes - 1; fewer than 128, so that a label is one byte of an Example."""

    def files(self) -> list[Path]:
        """The files of the data set on this machine; they need not exist.

        Raises:
            SetupError: this installation has no folder for them.
        """

    def load(self, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Images [n, *shape] and labels [n], in the published order.

        Raises:
            SetupError: a file is missing, truncated or has a wrong checksum.
        """


def partition(
    images: NDArray[np.uint8], labels: NDArray[np.uint8], workers: int, seed: int, train_samples: int
) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Equal parts, one a worker, of the first `train_samples` of a seeded permutation.

    Raises:
        ValueError: there are fewer samples, or they do not divide equally.
    """
    if train_samples > len(images) or train_samples % workers:
        raise ValueError(f"{train_samples} of {len(images)} samples cannot be split equally over {workers} workers")
    order = np.random.default_rng(seed).permutation(len(images))[:train_samples]
    return [(images[part], labels[part]) for part in np.split(order, workers)]
