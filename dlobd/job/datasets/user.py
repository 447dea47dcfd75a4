"""Loads data sets from a user's file or another package, and reports any of their errors in one line.

These data sets follow the contract of `base`; this module checks their properties and samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlobd import user_file
from dlobd.axes import DATASETS
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.job.datasets.tfrecord import DTYPES
from dlobd.schema import Experiment
from dlobd.user_file import MemberRef

if TYPE_CHECKING:
    from dlobd.job.datasets.base import Dataset, Order, Samples, Split


def is_users(ref: MemberRef) -> bool:
    """Return True for a data set that is not built in. An unknown name may belong to another package."""
    return bool(ref.path) or ref not in DATASETS.built_in()


def dataset_of(experiment: Experiment) -> Dataset:
    """Make the data set from the user's file or a package, and check its properties.

    Raises UsageError if the file does not load or has changed, or a property is invalid. Raises SetupError if the
    package is not installed.
    """
    name = experiment.dataset
    kind = DATASETS.resolve(name, experiment.dataset_sha256)
    with _one_line(f"data set {name}", kind, UsageError):
        dataset: Dataset = kind.of(experiment)
        wrong = _wrong(dataset)
    if wrong:
        raise UsageError(f"data set {name}: {wrong}.", "see the contract in dlobd/job/datasets/base.py")
    return dataset


def described(dataset: Dataset) -> str:
    """Return a data set's name, with its path if it comes from a user's file."""
    path = user_file.path_of(type(dataset))
    return f"{dataset.name} of {path}" if path else str(dataset.name)


def files(dataset: Dataset) -> list[Path]:
    """Return the source files of the data set. Raises SetupError if its code fails."""
    with _one_line(f"Files of data set {described(dataset)}", type(dataset), SetupError):
        return [Path(path) for path in dataset.files()]


def chunks(dataset: Dataset, split: Split, order: Order, samples: int) -> Iterator[Samples]:
    """Yield the samples at the positions `order` as arrays. Raises SetupError, also for a wrong number of samples."""
    count = 0
    what = f"Data set {described(dataset)}, {split}"
    with _one_line(what, type(dataset), SetupError):
        for images, labels in dataset.chunks(split, order, samples):
            count += len(labels)
            yield np.asarray(images), np.asarray(labels)
    if count != len(order):
        raise SetupError(f"{what}: it yielded {count} samples instead of {len(order)}.")


@contextmanager
def _one_line(what: str, kind: object, raised: type[DlobdError]) -> Iterator[None]:
    """Convert any error of a data set to one line, except errors of a built-in data set."""
    try:
        yield
    except (DlobdError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a file may also call sys.exit
        if str(kind.__module__).startswith("dlobd."):
            raise
        path = user_file.path_of(kind) if isinstance(kind, type) else None
        raise raised(f"{what}: {user_file.error_line(error, path or str(kind.__module__))}.") from error


def _wrong(dataset: Any) -> str:
    """Return the first invalid property of a data set in one line; empty if all are valid."""

    def positive(value: object) -> bool:
        return type(value) is int and value > 0

    for name in ("train_size", "test_size", "classes"):
        if not positive(value := getattr(dataset, name)):
            return f"{name} is {value!r}, not a positive integer"
    shape = dataset.shape
    if not isinstance(shape, tuple) or not shape or not all(map(positive, shape)):
        return f"shape is {shape!r}, not a tuple of positive sizes such as (28, 28)"
    if dataset.dtype not in DTYPES:
        return f"dtype is {dataset.dtype!r}, not one of {', '.join(DTYPES)}"
    if not isinstance(dataset.name, str) or type(dataset.permutes) is not bool:
        return "name must be a string, and permutes must be True or False"
    for name in ("files", "chunks"):
        if not callable(getattr(dataset, name)):
            return f"{name} is not a method"
    return ""
