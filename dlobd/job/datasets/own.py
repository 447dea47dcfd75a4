"""Data sets that are not dlobd's own, from the user's file or another package: whatever they do becomes one line.

They keep the contract of `base`, and what they announce and give is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd import own_file
from dlobd.axes import DATASETS
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.job.datasets.tfrecord import DTYPES
from dlobd.schema import Experiment


def is_own(name: str) -> bool:
    """Whether a data set is not dlobd's own. One that is not known at all may be another package's."""
    return own_file.named(name) is not None or name not in DATASETS.built_in()


def dataset_of(experiment: Experiment) -> Any:
    """A `dlobd.job.datasets.base.Dataset`.

    Raises:
        UsageError: its file does not load, has changed, or what it says of itself makes no data set.
        SetupError: its package is not here.
    """
    name = experiment.dataset
    if own := own_file.named(name):
        kind = own_file.load(own, experiment.dataset_sha256, lambda: own_file.read(own.path))
    else:
        kind = DATASETS.get(name)
    try:
        dataset = kind.of(experiment)
        wrong = _wrong(dataset)
    except (DlobdError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a file may also call sys.exit
        raise UsageError(f"data set {name}: {_said(error, kind)}.") from error
    if wrong:
        raise UsageError(f"data set {name}: {wrong}.", "dlobd/job/datasets/base.py has what a data set says of itself")
    return dataset


def described(dataset: Any) -> str:
    """A data set's name, and the file or package that it comes from."""
    path = own_file.path_of(type(dataset))
    return f"{dataset.name} of {path}" if path else str(dataset.name)


def files(dataset: Any) -> list[Path]:
    """The files that the data set names.

    Raises:
        SetupError: it raised; one line. Of dlobd's own data sets an error is passed on as it is.
    """
    try:
        return [Path(path) for path in dataset.files()]
    except (DlobdError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if type(dataset).__module__.startswith("dlobd."):
            raise
        raise SetupError(f"Data set {described(dataset)}, its files: {_said(error, type(dataset))}.") from error


def chunks(dataset: Any, split: str, order: Any, samples: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """What the data set gives for an order, as arrays, and as many samples as were asked for.

    Raises:
        SetupError: it raised, or gave fewer or more; one line. Of dlobd's own data sets an error is passed on as it is.
    """
    given = 0
    try:
        for images, labels in dataset.chunks(split, order, samples):
            given += len(labels)
            yield np.asarray(images), np.asarray(labels)
    except (DlobdError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if type(dataset).__module__.startswith("dlobd."):
            raise
        raise SetupError(f"Data set {described(dataset)}, {split}: {_said(error, type(dataset))}.") from error
    if given != len(order):
        raise SetupError(
            f"Data set {described(dataset)}, {split}: {given} samples came, and {len(order)} were asked for."
        )


def _said(error: BaseException, kind: Any) -> str:
    return own_file.error_line(
        error, (own_file.path_of(kind) if isinstance(kind, type) else None) or str(kind.__module__)
    )


def _wrong(dataset: Any) -> str:
    """What is wrong with what a data set announces; empty if nothing is."""

    def count(value: Any) -> bool:
        return type(value) is int and value > 0

    for name in ("train_size", "test_size", "classes"):
        if not count(value := getattr(dataset, name)):
            return f"{name} is {value!r}, and a whole number above 0 is needed"
    shape = dataset.shape
    if not isinstance(shape, tuple) or not shape or not all(map(count, shape)):
        return f"shape is {shape!r}, and a tuple of sizes above 0 is needed, such as (28, 28)"
    if dataset.dtype not in DTYPES:
        return f"dtype is {dataset.dtype!r}, and one of {', '.join(DTYPES)} is needed"
    if not isinstance(dataset.name, str) or type(dataset.permutes) is not bool:
        return "name must be a string, and permutes True or False"
    for name in ("files", "chunks"):
        if not callable(getattr(dataset, name)):
            return f"{name} is no method"
    return ""
