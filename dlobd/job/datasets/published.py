"""Shared parts of published data sets: files with known checksums, and splits cached in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dlobd.errors import SetupError
from dlobd.job.datasets.base import Order, Samples, Split
from dlobd.schema import Experiment


class InMemory:
    """Base of data sets whose splits fit into memory; see `base.Dataset`."""

    def __init__(self) -> None:
        self._read: dict[Split, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """Make the data set, which is equal for every experiment."""
        return cls()

    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        """See `dlobd.job.datasets.base.Dataset`."""
        if split not in self._read:
            self._read[split] = self.load(split)
        images, labels = self._read[split]
        for begin in range(0, len(order), samples):
            part = order[begin : begin + samples]
            yield images[part], labels[part]

    def load(self, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Read all images [n, *shape] and labels [n], in the published order.

        Raises SetupError if a file is missing, truncated or has a wrong checksum.
        """
        raise NotImplementedError


def checked(path: Path, size: int, md5: str, remedy: str) -> bytes:
    """Read a file, and compare size and md5 with the published values.

    Raises SetupError if it is missing, truncated or has a wrong checksum.
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
