"""Fusion of many small tensors into few large messages, because each message costs a latency; shards of buffers.

A plan is made once, from the shapes and types of the tensors. Each call then copies tensors into the plan's buckets and
out of them. A bucket has one type and holds its tensors in their order. Tensors are never cut: a tensor that is larger
than a bucket has its own bucket.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlobd.network.channels.base import Array

Type = np.dtype[Any]


class Fusion:
    """Plan of buckets, and their memory. The example tensors define only shapes and types.

    A bucket has at most `bucket_bytes`, unless a single tensor is larger.
    """

    def __init__(self, tensors: Sequence[Array], bucket_bytes: int) -> None:
        self._form = [(tensor.shape, tensor.dtype) for tensor in tensors]
        places: list[tuple[int, slice]] = []  # bucket and elements of each tensor
        filled: list[int] = []  # elements of each bucket
        types: list[Type] = []
        current: dict[Type, int] = {}
        for shape, dtype in self._form:
            count = math.prod(shape)
            bucket = current.get(dtype)
            if bucket is None or (filled[bucket] and (filled[bucket] + count) * dtype.itemsize > bucket_bytes):
                bucket = current[dtype] = len(filled)
                filled.append(0)
                types.append(dtype)
            places.append((bucket, slice(filled[bucket], filled[bucket] + count)))
            filled[bucket] += count
        self.buckets: list[Array] = [np.empty(count, dtype) for count, dtype in zip(filled, types, strict=True)]
        self._views: list[Array] = [
            self.buckets[bucket][part].reshape(shape)
            for (bucket, part), (shape, _) in zip(places, self._form, strict=True)
        ]

    @property
    def bytes(self) -> int:
        return sum(bucket.nbytes for bucket in self.buckets)

    def pack(self, tensors: Sequence[Array]) -> None:
        """Copy the tensors into the buckets. Raises ValueError: their shapes or types differ from the plan's."""
        if [(tensor.shape, tensor.dtype) for tensor in tensors] != self._form:
            raise ValueError("the shapes or types of the tensors differ from the fusion plan")
        for tensor, view in zip(tensors, self._views, strict=True):
            view[...] = tensor

    def unpack(self) -> list[Array]:
        """Return the tensors as views of the buckets: the next `pack` overwrites them."""
        return list(self._views)


def shards(elements: int, servers: int) -> list[slice]:
    """Cut a buffer into one slice per parameter server; lengths differ by at most one, and may be zero."""
    bounds = [elements * server // servers for server in range(servers + 1)]
    return [slice(bounds[server], bounds[server + 1]) for server in range(servers)]
