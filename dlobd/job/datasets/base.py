"""The data-set contract.

A data set
    1. is made of an experiment (`of`), and then knows its sizes, and what its images and labels are, without opening a
       file;
    2. names the files it is made of (`files`), so that they can be checked and staged; one that is generated has none;
    3. checks what it reads, each time, against published checksums;
    4. gives images and labels as they are, in pieces (`chunks`), in the order in which they are asked for: what a
       trainer does to them is the trainer's time, and the whole of it need not fit into memory;
    5. says whether any order may be asked for (`permutes`). Where not, every rank gets a stretch of the published
       order, and a seed does not change which;
    6. may say `anywhere = True`: it has no files, and any process on any node makes the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dlobd.axes import DATASETS
from dlobd.job.datasets import own
from dlobd.job.datasets.tfrecord import Layout
from dlobd.schema import Experiment

Split = Literal["train", "test"]

Samples = tuple[NDArray[Any], NDArray[Any]]
"""Images [n, *shape] of the data set's dtype, and labels [n] of any integer type."""

Order = NDArray[np.int64] | range
"""Positions in the published order: a stretch of it takes no memory, however long it is."""


class Dataset(Protocol):
    """Images with one label each."""

    name: ClassVar[str]
    permutes: ClassVar[bool]
    """Whether `chunks` takes any order."""

    @property
    def train_size(self) -> int: ...

    @property
    def test_size(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""

    @property
    def dtype(self) -> str:
        """Of its values: uint8, from 0 to 255, or float32, as a model is to see them."""

    @property
    def classes(self) -> int:
        """Labels are 0 .. classes - 1."""

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """As an experiment wants it. Opens no file.

        Raises:
            ValueError: what the experiment says of it makes no data set; one line.
        """

    def files(self) -> list[Path]:
        """The files of the data set on this machine; they need not exist.

        Raises:
            SetupError: this installation has no folder for them.
        """

    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        """The samples at the positions `order` of the published order, `samples` at once, the last time maybe fewer.

        Raises:
            SetupError: a file is missing, truncated or has a wrong checksum.
        """


def dataset_of(experiment: Experiment) -> Dataset:
    """The data set of an experiment.

    Raises:
        SetupError: it is not available here.
        UsageError: it is the user's own, and what it says makes no data set; one line.
    """
    if own.is_own(experiment.dataset):
        return declared(experiment)
    dataset: Dataset = DATASETS.get(experiment.dataset).of(experiment)
    return dataset


def declared(experiment: Experiment) -> Dataset:
    """As `dataset_of`, also where its files are not here: for what a data set says of itself.

    Raises:
        ValueError: what the experiment says of it makes no data set; one line.
    """
    dataset: Dataset
    if own.is_own(experiment.dataset):
        dataset = own.dataset_of(experiment)
    else:
        dataset = DATASETS.declared(experiment.dataset).of(experiment)
    return dataset


def layout_of(dataset: Dataset) -> Layout:
    """How its records lie in a file."""
    return Layout(dataset.shape, dataset.dtype, dataset.classes)


def partition(size: int, workers: int, seed: int, train_samples: int, permutes: bool = True) -> Sequence[Order]:
    """Which of `size` samples each worker gets, in its order: equal parts of the first `train_samples` of a seeded
    permutation, or of the published order where the data set takes no other.

    Raises:
        ValueError: there are fewer samples, or they do not divide equally.
    """
    if train_samples > size or train_samples % workers:
        raise ValueError(f"{train_samples} of {size} samples cannot be split evenly across {workers} workers")
    if not permutes:
        each = train_samples // workers
        return [range(first, first + each) for first in range(0, train_samples, each)]
    return np.split(np.random.default_rng(seed).permutation(size)[:train_samples], workers)
