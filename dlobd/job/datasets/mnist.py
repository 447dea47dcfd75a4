"""MNIST, from the four original IDX files in the package (terms: data/mnist/README.md)."""

import gzip
import os
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dlobd.job.datasets.base import InMemory, Split, checked
from dlobd.paths import shipped

_FILES = {
    # name: (compressed bytes, md5 of the compressed file)
    "train-images-idx3-ubyte.gz": (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte.gz": (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte.gz": (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte.gz": (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
}

_REMEDY = "restore the file from the repository, or set DLOBD_DATA to a folder that contains mnist/"


class Mnist(InMemory):
    """Reader of `mnist/` in the shipped data, or in the folder of the variable DLOBD_DATA; it caches 47 MB."""

    name: ClassVar[str] = "mnist"
    train_size: ClassVar[int] = 60_000
    test_size: ClassVar[int] = 10_000
    shape: ClassVar[tuple[int, ...]] = (28, 28)

    def files(self) -> list[Path]:
        variable = os.environ.get("DLOBD_DATA")
        users = Path(variable).expanduser() / "mnist" if variable else None
        # the user's folder may lack MNIST
        folder = users if users and users.is_dir() else shipped("data/mnist")
        return [folder / name for name in _FILES]

    def load(self, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        images, labels = self.files()[:2] if split == "train" else self.files()[2:]
        n = self.train_size if split == "train" else self.test_size
        return _idx(images, (n, *self.shape)), _idx(labels, (n,))


def _idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an IDX file: two zero bytes, 8 for uint8, the number of dimensions, each dimension, the values."""
    data = gzip.decompress(checked(path, *_FILES[path.name], _REMEDY))
    header = np.frombuffer(data, ">u4", 1 + len(shape))
    # the checksum is correct, so a different shape is a bug in dlobd
    assert tuple(header) == (0x800 + len(shape), *shape), f"{path}: unexpected IDX header {header}"
    return np.frombuffer(data, np.uint8, offset=header.nbytes).reshape(shape)
