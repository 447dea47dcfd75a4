"""MNIST, from the four original IDX files that come with dlobd (terms: data/mnist/README.md)."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dlobd.errors import SetupError
from dlobd.job.datasets.base import Order, Samples, Split
from dlobd.paths import shipped
from dlobd.schema import Experiment

_FILES = {
    # name: (compressed bytes, md5 of the compressed file)
    "train-images-idx3-ubyte.gz": (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte.gz": (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte.gz": (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte.gz": (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
}


class Mnist:
    """Reads `mnist/` in the shipped data, or in the folder that the environment's DLOBD_DATA names."""

    name: ClassVar[str] = "mnist"
    train_size: ClassVar[int] = 60_000
    test_size: ClassVar[int] = 10_000
    shape: ClassVar[tuple[int, ...]] = (28, 28)
    dtype: ClassVar[str] = "uint8"
    classes: ClassVar[int] = 10
    permutes: ClassVar[bool] = True

    def __init__(self) -> None:
        self._read: dict[Split, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """The same for every experiment."""
        return cls()

    def files(self) -> list[Path]:
        """The four files. See `dlobd.job.datasets.base.Dataset`."""
        own = os.environ.get("DLOBD_DATA")
        named = Path(own).expanduser() / "mnist" if own else None
        # a folder that holds another data set only says nothing of this one
        folder = named if named and named.is_dir() else shipped("data/mnist")
        return [folder / name for name in _FILES]

    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        """See `dlobd.job.datasets.base.Dataset`; 47 MB, so that all of it is kept."""
        if split not in self._read:
            self._read[split] = self.load(split)
        images, labels = self._read[split]
        for begin in range(0, len(order), samples):
            part = order[begin : begin + samples]
            yield images[part], labels[part]

    def load(self, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """All images [n, 28, 28] and labels [n], in the published order.

        Raises:
            SetupError: a file is missing, truncated or has a wrong checksum.
        """
        images, labels = self.files()[:2] if split == "train" else self.files()[2:]
        n = self.train_size if split == "train" else self.test_size
        return _idx(images, (n, *self.shape)), _idx(labels, (n,))


def _idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An IDX file: two zero bytes, 8 for uint8, the number of dimensions, each dimension, the values."""
    data = gzip.decompress(_checked(path))
    header = np.frombuffer(data, ">u4", 1 + len(shape))
    # the checksum was right, so a different shape is a bug in dlobd
    assert tuple(header) == (0x800 + len(shape), *shape), f"{path}: unexpected IDX header {header}"
    return np.frombuffer(data, np.uint8, offset=header.nbytes).reshape(shape)


def _checked(path: Path) -> bytes:
    """The content of a file whose size and md5 are the published ones."""
    remedy = "restore the file from the repository, or set DLOBD_DATA to a folder that holds mnist/"
    size, md5 = _FILES[path.name]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SetupError(f"data file {path} cannot be read: {error.strerror}.", remedy) from None
    if len(data) < size:
        raise SetupError(f"data file {path} is truncated: {len(data)} of {size} bytes.", remedy)
    if (found := hashlib.md5(data, usedforsecurity=False).hexdigest()) != md5:
        raise SetupError(f"data file {path} has md5 {found}, not {md5}.", remedy)
    return data
