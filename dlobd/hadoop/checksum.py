"""The checksum by which HDFS knows a file, computed from the file's bytes: the same without asking HDFS.

A DataNode keeps a CRC-32C of every 512 bytes (dfs.bytes-per-checksum, dfs.checksum.type). The checksum of a file is the
MD5 of its blocks' MD5s of these; computed here for files of one block, as the staged ones are.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from dlobd.hadoop.crc32c import crc32c

CRC_BYTES, CHUNK_BYTES = 4, 512

ALGORITHM = "MD5-of-0MD5-of-512CRC32C"
"""Its name: of no full sequence of blocks, of chunks of 512 bytes."""

_BUFFER_BYTES = 32
"""Hadoop hashes its whole buffer of block checksums, with the zeros behind the 16 bytes of a single one."""


class OneBlockChecksum:
    """Of a file of one block, from its bytes as they come."""

    def __init__(self) -> None:
        self._block = hashlib.md5(usedforsecurity=False)
        self._rest = b""  # of a chunk that is not whole yet

    def add(self, data: bytes) -> None:
        """The next bytes of the file."""
        data = self._rest + data if self._rest else data
        whole = len(data) // CHUNK_BYTES * CHUNK_BYTES
        self._block.update(_crcs(np.frombuffer(data, np.uint8, whole).reshape(-1, CHUNK_BYTES)))
        self._rest = data[whole:]

    def hexdigest(self) -> str:
        """What WebHDFS answers to GETFILECHECKSUM for the file so far: chunk size, chunks a block, MD5."""
        block = self._block.copy()
        if self._rest:
            block.update(_crcs(np.frombuffer(self._rest, np.uint8)[np.newaxis]))
        file = hashlib.md5(block.digest().ljust(_BUFFER_BYTES, b"\0"), usedforsecurity=False).digest()
        return (struct.pack(">iq", CHUNK_BYTES, 0) + file).hex()


def _crcs(chunks: NDArray[np.uint8]) -> bytes:
    return crc32c(chunks).astype(">u4").tobytes()


def one_block_checksum(data: bytes) -> str:
    """`OneBlockChecksum` of a whole file."""
    checksum = OneBlockChecksum()
    checksum.add(data)
    return checksum.hexdigest()
