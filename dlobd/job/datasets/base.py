"""The data-set contract.

A data set
    1. is made from an experiment (`of`); its sizes, shape, dtype and classes are known without opening a file;
    2. lists its source files (`files`), so that they can be checked and staged; a generated data set has none;
    3. compares its files with published checksums whenever it reads them;
    4. yields unchanged images and labels in pieces (`chunks`), in the requested order: preprocessing belongs to the
       trainer's time, and the data set need not fit into memory;
    5. sets `permutes = True` if it allows any order. Otherwise every rank gets a contiguous part of the published
       order, for any seed;
    6. may set `anywhere = True`: it has no files, and any process on any node generates the same samples.

A data set from a user's file or another package is checked: its properties and samples are compared with the contract,
and any of its errors becomes one line.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dlobd import user_file
from dlobd.axes import DATASETS
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.job.datasets.tfrecord import DTYPES, Layout
from dlobd.schema import Experiment
from dlobd.user_file import MemberRef

Split = Literal["train", "test"]

Samples = tuple[NDArray[Any], NDArray[Any]]
"""Images [n, *shape] of the data set's dtype, and labels [n] of any integer type."""

Order = NDArray[np.int64] | range
"""Positions in the published order; a range needs no memory."""


class Dataset(Protocol):
    """A set of labelled images."""

    name: ClassVar[str]
    permutes: ClassVar[bool]
    """True if `chunks` accepts any order."""

    @property
    def train_size(self) -> int: ...

    @property
    def test_size(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an image."""

    @property
    def dtype(self) -> str:
        """Type of the values: uint8 from 0 to 255, or float32, which the model receives unscaled."""

    @property
    def classes(self) -> int:
        """Number of classes; labels are 0 .. classes - 1."""

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """Make the data set of an experiment, without opening a file.

        Raises ValueError with a message of one line if the experiment's settings of the data set are invalid.
        """

    def files(self) -> list[Path]:
        """Return the files of the data set on this machine; they need not exist.

        Raises SetupError if this installation has no folder for them.
        """

    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        """Yield the samples at the positions `order` of the published order, in pieces of at most `samples`.

        Raises SetupError if a file is missing, truncated or has a wrong checksum.
        """


class InMemory:
    """Base class of published data sets, which fit into memory. A split is read once per process."""

    dtype: ClassVar[str] = "uint8"
    classes: ClassVar[int] = 10
    permutes: ClassVar[bool] = True

    def __init__(self) -> None:
        self._read: dict[Split, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """Make the data set, which does not depend on the experiment."""
        return cls()

    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        if split not in self._read:
            self._read[split] = self.load(split)
        images, labels = self._read[split]
        for begin in range(0, len(order), samples):
            part = order[begin : begin + samples]
            yield images[part], labels[part]

    def load(self, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Read all images [n, *shape] and labels [n], in the published order.

        Raises the errors of `checked`.
        """
        raise NotImplementedError


def checked(path: Path, size: int, md5: str, remedy: str) -> bytes:
    """Read a file, and compare its size and md5 with the published values.

    Raises SetupError if the file is missing, truncated or has a wrong checksum.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SetupError(f"data file {path} cannot be read: {error.strerror}.", remedy) from None
    if len(data) < size:
        raise SetupError(f"data file {path} is truncated: {len(data)} of {size} bytes.", remedy)
    if (actual := md5_of(data)) != md5:
        raise SetupError(f"data file {path} has md5 {actual}, not {md5}.", remedy)
    return data


def md5_of(data: bytes) -> str:
    """Return the md5 in hexadecimal digits."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def dataset_of(experiment: Experiment, available: bool = True) -> Dataset:
    """Make the data set of an experiment.

    Args:
        available: raise SetupError if its files or packages are not on this machine; False to read its properties only.

    Raises:
        ValueError: the experiment's settings of the data set are invalid; one line.
        UsageError: a user's data set does not load, has changed, or has invalid properties; one line.
        SetupError: the package of a user's data set is not installed.
    """
    if is_users(experiment.dataset):
        return _users(experiment)
    get = DATASETS.get if available else DATASETS.declared
    dataset: Dataset = get(experiment.dataset).of(experiment)
    return dataset


def layout_of(dataset: Dataset) -> Layout:
    """Return the layout of the data set's records."""
    return Layout(dataset.shape, dataset.dtype, dataset.classes)


def partition(size: int, workers: int, seed: int, train_samples: int, permutes: bool = True) -> Sequence[Order]:
    """Return the positions of each worker's samples among `size` samples, in training order.

    The workers get equal parts of the first `train_samples` of a seeded permutation, or of the published order if the
    data set allows no other order.

    Raises ValueError if there are fewer samples, or the workers do not divide them equally.
    """
    if train_samples > size or train_samples % workers:
        raise ValueError(f"{train_samples} of {size} samples cannot be split evenly across {workers} workers")
    if not permutes:
        samples = train_samples // workers
        return [range(first, first + samples) for first in range(0, train_samples, samples)]
    return np.split(np.random.default_rng(seed).permutation(size)[:train_samples], workers)


def is_users(ref: MemberRef) -> bool:
    """Return True for a data set that is not built in. An unknown name may belong to another package."""
    return bool(ref.path) or ref not in DATASETS.built_in()


def _users(experiment: Experiment) -> Dataset:
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


def files_of(dataset: Dataset) -> list[Path]:
    """Return the source files of the data set. Raises SetupError if its code fails."""
    with _one_line(f"Files of data set {described(dataset)}", type(dataset), SetupError):
        return [Path(path) for path in dataset.files()]


def chunks_of(dataset: Dataset, split: Split, order: Order, samples: int) -> Iterator[Samples]:
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
