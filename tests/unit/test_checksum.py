"""HDFS's checksum of a file, against a small implementation of its own: textbook CRC, Hadoop's buffer byte by byte."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from dlobd.experiment import files
from dlobd.hadoop.checksum import FileChecksum, same_form
from dlobd.hadoop.checksum import crc32c as rows_crc32c
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.datasets.mnist import Mnist
from dlobd.job.datasets.parts import Part
from dlobd.run import staging

ONE_BLOCK, SEVERAL_BLOCKS = "MD5-of-0MD5-of-512CRC32C", "MD5-of-2048MD5-of-512CRC32C"
VECTOR = "0000020000000000000000026b79a0f9f5385d854916d69b0fada368"


def file_checksum(data: bytes, block_bytes: int | None = None) -> str:
    checksum = FileChecksum(block_bytes)
    checksum.add(data)
    return checksum.hexdigest()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def by_hand(data: bytes, block_bytes: int) -> str:
    """What a NameNode's client computes: block by block, and a buffer that doubles when 16 more bytes do not fit."""
    blocks = [data[at : at + block_bytes] for at in range(0, len(data), block_bytes)] or [b""]
    buffer, used = bytearray(32), 0
    for block in blocks:
        crcs = b"".join(struct.pack(">I", crc32c(block[at : at + 512])) for at in range(0, len(block), 512))
        if used + 16 > len(buffer):
            buffer += bytes(len(buffer))
        buffer[used : used + 16] = md5(crcs)
        used += 16
    crcs_per_block = block_bytes // 512 if len(blocks) > 1 else 0
    return struct.pack(">iq16s", 512, crcs_per_block, md5(bytes(buffer))).hex()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 63])
def test_crcs_of_rows_of_any_length(size: int) -> None:
    rows = np.random.default_rng(size).integers(0, 256, (5, size + 3), np.uint8)[:, 3:]
    assert rows_crc32c(rows).tolist() == [crc32c(row.tobytes()) for row in rows]


@pytest.mark.parametrize("size", [0, 1, 512, 1023, 1024, 1025, 2047, 2048, 3 * 1024, 5 * 1024 + 7, 17 * 1024])
def test_a_file_of_several_blocks(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert file_checksum(data, 1024) == by_hand(data, 1024)


def test_a_known_vector() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = bytes(range(256)) * 13
    assert file_checksum(data, 1024) == by_hand(data, 1024) == VECTOR


def test_a_file_that_fits_into_one_block_names_no_block_size() -> None:
    data = np.random.default_rng(1).bytes(4096)
    assert len({file_checksum(data, size) for size in (None, 4096, 4608, 1 << 20)}) == 1
    assert file_checksum(data, 2048) != file_checksum(data)


@pytest.mark.parametrize("cuts", [[1], [511, 513, 1024], [1023, 1025], [0, 2048, 2048], [3000]])
def test_pieces_across_blocks(cuts: list[int]) -> None:
    data = np.random.default_rng(2).bytes(3333)
    checksum = FileChecksum(1024)
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        checksum.add(data[begin:end])
    assert checksum.hexdigest() == file_checksum(data, 1024)


@pytest.mark.parametrize("size", [0, -512, 1000])
def test_a_block_that_hdfs_cannot_have_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="is not made of chunks of 512"):
        FileChecksum(size)


def test_what_can_be_compared_with_ours() -> None:
    data = bytes(3 << 20)
    one, several = file_checksum(data), file_checksum(data, 1 << 20)
    assert same_form(ONE_BLOCK, one + "0" * 8, one)
    assert same_form(SEVERAL_BLOCKS, several, several)
    assert not same_form(SEVERAL_BLOCKS, several, one)
    assert not same_form("MD5-of-0MD5-of-1024CRC32C", one, one)
    assert not same_form("COMPOSITE-CRC32C", one, one)
    assert same_form(ONE_BLOCK, one, None)


def test_staging_notes_the_checksum_of_files_of_several_blocks(tmp_path: Path) -> None:
    changed = ["dataset=synthetic", "synthetic_shape=64x64x3", "train_samples=400", "test_samples=20", "batch_size=20"]
    asked = files.load("softmax-mnist", [*changed, "block_size_mb=1"])
    staged = staging.stage(asked, LocalDirectory(), str(tmp_path), lambda line: None)
    noted = json.loads(Path(staged.train_dir).with_name("_SUCCESS").read_text())
    for path in sorted(Path(staged.train_dir).iterdir()):
        assert noted[str(path)] == file_checksum(path.read_bytes(), 1 << 20) != file_checksum(path.read_bytes())
    assert noted[staged.test_path] == file_checksum(Path(staged.test_path).read_bytes())


def test_the_blocks_of_a_part() -> None:
    assert Part(Mnist(), "train", range(30_000), 4).block_bytes == 4 << 20
    whole = Part(Mnist(), "train", range(30_000))
    assert whole.bytes < whole.block_bytes
    assert whole.block_bytes % 512 == 0
    assert Part(Mnist(), "train", range(1)).block_bytes == 1 << 20
