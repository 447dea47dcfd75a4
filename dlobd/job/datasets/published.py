"""What published data sets share: files with known checksums, and a split that is kept in memory once it was read."""

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
    """The part of a data set that is the same for all whose splits fit into memory; see `base.Dataset`."""

    def __init__(self) -> None:
        self._read: dict[Split, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """The same for every experiment."""
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
        """All images [n, *shape] and labels [n], in the published order.

        Raises:
            SetupError: a file is missing, truncated or has a wrong checksum.
        """
        raise NotImplementedError


def checked(path: Path, size: int, md5: str, remedy: str) -> bytes:
    """The content of a file whose size and md5 are the published ones.

    Raises:
        SetupError: it is missing, truncated or has a wrong checksum.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SetupError(f"data file {path} cannot be read: {error.strerror}.", remedy) from None
    if len(data) < size:
        raise SetupError(f"data file {path} is truncated: {len(data)} of {size} bytes.", remedy)
    if (found := md5_of(data)) != md5:
        raise SetupError(f"data file {path} has md5 {found}, not {md5}.", remedy)
    return data


def md5_of(data: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
