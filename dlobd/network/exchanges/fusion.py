"""Fusion: many small tensors travel as few large messages, because each message costs a latency of its own.

A plan is made once, of the tensors' shapes and types; then each call copies tensors into the plan's buckets and out of
them. A bucket has one type, and its tensors lie in it in their order. A tensor is never cut: one that is larger than a
bucket has one of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FUSION_BYTES = 64 << 20
"""The size of a bucket unless told otherwise: Horovod's default (HOROVOD_FUSION_THRESHOLD, 64 MB)."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies: elements [start, stop) of a bucket."""

    bucket: int
    start: int
    stop: int
    shape: tuple[int, ...]


class Fusion:
    """The plan and its memory.

    Args:
        tensors: those of every later call, of which only shapes and types are used here.
        bucket_bytes: the most that a bucket holds, unless one tensor is larger.
    """

    def __init__(self, tensors: Sequence[NDArray[Any]], bucket_bytes: int = FUSION_BYTES) -> None:
        self._form = [(tensor.shape, tensor.dtype) for tensor in tensors]
        self._places: list[_Place] = []
        filled: list[int] = []  # elements of each bucket
        types: list[np.dtype[Any]] = []
        current: dict[np.dtype[Any], int] = {}
        for shape, dtype in self._form:
            count = math.prod(shape)
            bucket = current.get(dtype)
            if bucket is None or (filled[bucket] and (filled[bucket] + count) * dtype.itemsize > bucket_bytes):
                bucket = current[dtype] = len(filled)
                filled.append(0)
                types.append(dtype)
            self._places.append(_Place(bucket, filled[bucket], filled[bucket] + count, shape))
            filled[bucket] += count
        self.buckets: list[NDArray[Any]] = [np.empty(count, dtype) for count, dtype in zip(filled, types, strict=True)]

    @property
    def bytes(self) -> int:
        """Of all buckets."""
        return sum(bucket.nbytes for bucket in self.buckets)

    def pack(self, tensors: Sequence[NDArray[Any]]) -> None:
        """Copies the tensors into the buckets.

        Raises:
            ValueError: they are not of the plan's shapes and types.
        """
        if [(tensor.shape, tensor.dtype) for tensor in tensors] != self._form:
            raise ValueError("these tensors are not those that the fusion was planned for")
        for tensor, place in zip(tensors, self._places, strict=True):
            self.buckets[place.bucket][place.start : place.stop].reshape(place.shape)[...] = tensor

    def unpack(self) -> list[NDArray[Any]]:
        """The tensors as views of the buckets: the next `pack` overwrites them."""
        return [self.buckets[place.bucket][place.start : place.stop].reshape(place.shape) for place in self._places]
