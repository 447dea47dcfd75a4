"""CIFAR-10 in its binary version: the part in the repository, and the complete data set after a download.

The part and the complete data set have different names, so that a configuration, its key and every report distinguish
them (terms: data/cifar-10/README.md).
"""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dlobd.errors import SetupError
from dlobd.job.datasets.base import InMemory, Split, checked, md5_of
from dlobd.paths import data_file, fetched_dir

SHAPE = (32, 32, 3)
RECORD_BYTES = 1 + 32 * 32 * 3
FOLDER = "cifar-10"


@dataclass(frozen=True, slots=True)
class Batch:
    """A file of records: a label byte, then 1,024 bytes per colour: red, green, blue."""

    name: str
    records: int
    md5: str  # of the records
    packed: tuple[int, str] | None = None  # size and md5 of the compressed file; None if the file is not compressed

    @property
    def bytes(self) -> int:
        return self.records * RECORD_BYTES


WHOLE: dict[Split, tuple[Batch, ...]] = {
    "train": (
        Batch("data_batch_1.bin", 10_000, "5dd7e06a14cb22eb9f671a540d1b7c25"),
        Batch("data_batch_2.bin", 10_000, "5ea93a67294ea407fff1d09f752e9692"),
        Batch("data_batch_3.bin", 10_000, "942cd6a4bcdd0dd3c604fbe906cb4421"),
        Batch("data_batch_4.bin", 10_000, "ae636b3ba5c66a11e91e8cb52e771fcb"),
        Batch("data_batch_5.bin", 10_000, "53f37980c15c3d472c316c40844f3f0d"),
    ),
    "test": (Batch("test_batch.bin", 10_000, "803d5f7f4d78ea53de84dbe85f74fb6d"),),
}

PARTIAL: dict[Split, tuple[Batch, ...]] = {
    "train": (
        Batch(
            "data_batch_1.bin.gz",
            10_000,
            "5dd7e06a14cb22eb9f671a540d1b7c25",
            (28_313_767, "cd8a231dfb0bf59633792b9835f8f6fa"),
        ),
    ),
    "test": (
        Batch(
            "test_batch_first1000.bin.gz",
            1_000,
            "371f65da31ad652f5e24b3699a3e6515",
            (2_834_548, "ee0705fbb8a753ed06a6db2413c8cf44"),
        ),
    ),
}


class _Batches(InMemory):
    """Reader of `cifar-10/` in a data folder; it caches 30 MB per batch."""

    batches: ClassVar[dict[Split, tuple[Batch, ...]]]
    remedy: ClassVar[str]
    shape: ClassVar[tuple[int, ...]] = SHAPE

    def files(self) -> list[Path]:
        """Return the paths of the batches, all in one folder. See `dlobd.job.datasets.base.Dataset`."""
        first = data_file(f"{FOLDER}/{self.batches['train'][0].name}")
        folder = first.parent if first else fetched_dir() / FOLDER
        return [folder / batch.name for split in self.batches.values() for batch in split]

    def load(self, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        folder = self.files()[0].parent
        batches = self.batches[split]
        size = sum(batch.records for batch in batches)
        images, labels = np.empty((size, *SHAPE), np.uint8), np.empty(size, np.uint8)
        at = 0
        for batch in batches:
            data = _records_of(folder / batch.name, batch, self.remedy)
            records = np.frombuffer(data, np.uint8).reshape(-1, RECORD_BYTES)
            part = slice(at, at + batch.records)
            labels[part] = records[:, 0]
            # from planar RGB (CHW) to interleaved RGB (HWC)
            images[part] = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            at += batch.records
        return images, labels


class Cifar10(_Batches):
    """The complete data set of `dlobd data fetch cifar10`."""

    name: ClassVar[str] = "cifar10"
    train_size: ClassVar[int] = 50_000
    test_size: ClassVar[int] = 10_000
    batches: ClassVar[dict[Split, tuple[Batch, ...]]] = WHOLE
    remedy: ClassVar[str] = "dlobd data fetch cifar10"


class Cifar10Partial(_Batches):
    """The first training batch, and the first 1,000 images of the test set."""

    name: ClassVar[str] = "cifar10-partial"
    train_size: ClassVar[int] = 10_000
    test_size: ClassVar[int] = 1_000
    batches: ClassVar[dict[Split, tuple[Batch, ...]]] = PARTIAL
    remedy: ClassVar[str] = "restore the file from the repository, or `dlobd data fetch cifar10` and dataset=cifar10"


def _records_of(path: Path, batch: Batch, remedy: str) -> bytes:
    """Read the records of a file, and compare its size and checksums with the published values."""
    size, md5 = batch.packed or (batch.bytes, batch.md5)
    data = checked(path, size, md5, remedy)
    if batch.packed:
        data = gzip.decompress(data)
        if (actual := md5_of(data)) != batch.md5:
            raise SetupError(f"the content of data file {path} has md5 {actual}, not {batch.md5}.", remedy)
    return data
