"""The checksum by which HDFS knows a file, computed from the file's bytes: the same without asking HDFS.

A DataNode keeps a CRC-32C of every 512 bytes (dfs.bytes-per-checksum, dfs.checksum.type). The checksum of a file is the
MD5 of its blocks' MD5s of these; ours is of files of one block, as the staged ones are.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from dlobd.hadoop.crc32c import crc32c

CRC_BYTES, CHUNK_BYTES = 4, 512

ALGORITHM = "MD5-of-0MD5-of-512CRC32C"
"""Its name: of no full sequence of blocks, of chunks of 512 bytes."""

_BUFFER_BYTES = 32
"""Hadoop hashes its whole buffer of block checksums, with the zeros behind the 16 bytes of a single one."""


def one_block_checksum(data: bytes) -> str:
    """What WebHDFS answers to GETFILECHECKSUM for a file of one block, as hex: chunk size, chunks a block, MD5."""
    whole = len(data) // CHUNK_BYTES * CHUNK_BYTES
    crcs = crc32c(np.frombuffer(data[:whole], np.uint8).reshape(-1, CHUNK_BYTES))
    if rest := data[whole:]:
        crcs = np.append(crcs, crc32c(np.frombuffer(rest, np.uint8)[np.newaxis]))
    block = hashlib.md5(crcs.astype(">u4").tobytes(), usedforsecurity=False).digest()
    file = hashlib.md5(block.ljust(_BUFFER_BYTES, b"\0"), usedforsecurity=False).digest()
    return (struct.pack(">iq", CHUNK_BYTES, 0) + file).hex()
