"""Staged files and HDFS's checksum of a file, against the textbook CRC and Hadoop's buffer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dlobd.errors import ClusterError
from dlobd.experiment import files
from dlobd.hadoop.checksum import FileChecksum, same_form
from dlobd.hadoop.checksum import crc32c as rows_crc32c
from dlobd.hadoop.file_system import LocalDirectory, WebHdfs
from dlobd.job import generation
from dlobd.job.datasets.base import Order, Samples, Split
from dlobd.job.datasets.mnist import Mnist
from dlobd.job.datasets.tfrecord import Layout
from dlobd.job.generation import Part
from dlobd.run import staging
from dlobd.schema import Experiment

ONE_BLOCK, SEVERAL_BLOCKS = "MD5-of-0MD5-of-512CRC32C", "MD5-of-2048MD5-of-512CRC32C"
VECTOR = "0000020000000000000000026b79a0f9f5385d854916d69b0fada368"


def file_checksum(data: bytes, block_bytes: int = 128 << 20) -> str:
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


def test_checksums_of_one_and_several_blocks() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = bytes(range(256)) * 13
    assert file_checksum(data, 1024) == by_hand(data, 1024) == VECTOR
    data = np.random.default_rng(1).bytes(4096)
    assert len({file_checksum(data, size) for size in (4096, 4608, 1 << 20, 128 << 20)}) == 1
    assert file_checksum(data, 2048) != file_checksum(data)
    data = bytes(3 << 20)
    one, several = file_checksum(data), file_checksum(data, 1 << 20)
    assert same_form(ONE_BLOCK, one + "0" * 8, one)
    assert same_form(SEVERAL_BLOCKS, several, several)
    assert not same_form(SEVERAL_BLOCKS, several, one)
    assert not same_form("MD5-of-0MD5-of-1024CRC32C", one, one)
    assert not same_form("COMPOSITE-CRC32C", one, one)
    assert same_form(ONE_BLOCK, one, None)


@pytest.mark.parametrize("cuts", [[1], [511, 513, 1024], [1023, 1025], [0, 2048, 2048], [3000]])
def test_pieces_across_blocks(cuts: list[int]) -> None:
    data = np.random.default_rng(2).bytes(3333)
    checksum = FileChecksum(1024)
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        checksum.add(data[begin:end])
    assert checksum.hexdigest() == file_checksum(data, 1024)


@pytest.mark.parametrize("size", [0, -512, 1000])
def test_a_block_that_hdfs_cannot_have_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="is not a multiple of 512 bytes"):
        FileChecksum(size)


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


def small(**changes: object) -> Experiment:
    quick = files.load("softmax-mnist-quick")
    return dataclasses.replace(quick, train_samples=600, test_samples=100, **changes)  # type: ignore[arg-type]


def silent(line: str) -> None:
    """Nobody watches."""


def test_files_are_equal_and_one_a_worker(tmp_path: Path) -> None:
    told: list[str] = []
    staged = staging.stage(small(workers=3), LocalDirectory(), str(tmp_path), told.append)
    record_bytes = staged.layout.record_bytes
    sizes = [path.stat().st_size for path in sorted(Path(staged.train_dir).iterdir())]
    assert sizes == [200 * record_bytes] * 3
    assert staged.bytes == sum(sizes)
    assert Path(staged.test_path).stat().st_size == 100 * record_bytes
    assert (staged.layout, staged.reused) == (Layout((28, 28), "uint8", 10), False)
    assert len([line for line in told if "tfrecord" in line]) == 4


def test_staged_files_are_reused(tmp_path: Path) -> None:
    first = staging.stage(small(), LocalDirectory(), str(tmp_path), silent)
    part = next(Path(first.train_dir).iterdir())
    stamp = part.stat().st_mtime_ns
    again = staging.stage(small(), LocalDirectory(), str(tmp_path), silent)
    assert again == dataclasses.replace(first, reused=True)
    assert part.stat().st_mtime_ns == stamp
    part.write_bytes(b"damaged")
    Path(first.train_dir).with_name("_SUCCESS").unlink()
    assert not staging.stage(small(), LocalDirectory(), str(tmp_path), silent).reused
    assert part.stat().st_size > 100


def test_equal_parameters_give_equal_bytes(tmp_path: Path) -> None:
    def data(name: str, seed: int) -> list[bytes]:
        staged = staging.stage(small(seed=seed), LocalDirectory(), str(tmp_path / name), silent)
        return [path.read_bytes() for path in sorted(Path(staged.train_dir).iterdir())]

    assert data("a", 1) == data("b", 1) != data("c", 2)


@pytest.mark.parametrize(
    "change",
    [
        {"workers": 3},
        {"seed": 5},
        {"train_samples": 1_200},
        {"test_samples": 50},
        {"dataset": "synthetic"},
        {"block_size_mb": 1},
    ],
)
def test_the_directory_names_all_that_its_content_depends_on(change: dict[str, object]) -> None:
    quick = files.load("softmax-mnist-quick")
    other = dataclasses.replace(quick, **change)  # type: ignore[arg-type]
    assert staging.directory(other) != staging.directory(quick)
    assert staging.directory(dataclasses.replace(quick, epochs=9, learning_rate=1.0)) == staging.directory(quick)


def test_a_storage_that_refuses_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "dlobd").write_text("")
    with pytest.raises(ClusterError, match="refused to store the data set") as caught:
        staging.stage(small(), LocalDirectory(), str(tmp_path), silent)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (
            lambda part: part.write_bytes(part.read_bytes()[: part.stat().st_size // 2]),
            "holds 150 records, 300 expected",
        ),
        (lambda part: part.unlink(), "is missing, 300 expected"),
        (lambda part: part.with_name("part-00009.tfrecord").write_bytes(b""), "holds 0 records, none expected"),
    ],
)
def test_files_of_unequal_length_are_refused(tmp_path: Path, damage: Callable[[Path], object], what: str) -> None:
    """The shorter rank would leave the others in a collective: the line names the file and both numbers of records."""
    staged = staging.stage(small(workers=2), LocalDirectory(), str(tmp_path), silent)
    damage(Path(staged.train_dir) / "part-00001.tfrecord")
    with pytest.raises(ClusterError, match=rf"The data set is damaged: {staged.train_dir}/part-0000\d.tfrecord {what}"):
        staging.stage(small(workers=2), LocalDirectory(), str(tmp_path), silent)


def test_a_data_set_is_never_whole_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = staging.stage(small(), LocalDirectory(), str(tmp_path / "whole"), silent)
    asked: list[int] = []
    chunks = Mnist.chunks

    def counted(self: Mnist, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        asked.append(samples)
        return chunks(self, split, order, samples)

    monkeypatch.setattr(Mnist, "chunks", counted)
    monkeypatch.setattr(generation, "PIECE_BYTES", 10_000)
    pieces = staging.stage(small(), LocalDirectory(), str(tmp_path / "pieces"), silent)
    assert asked == [10_000 // whole.layout.record_bytes] * 3
    for one, other in ((whole.train_dir, pieces.train_dir), (str(Path(whole.test_path).parent),) * 2):
        for path in Path(one).glob("*.tfrecord"):
            assert path.read_bytes() == (Path(other) / path.name).read_bytes()
    texts = [Path(staged.train_dir).with_name("_SUCCESS").read_text() for staged in (whole, pieces)]
    assert [*json.loads(texts[0]).values()] == [*json.loads(texts[1]).values()]


def test_a_write_that_begins_anew_gets_all_pieces_again(tmp_path: Path) -> None:
    """No first half of a file is lost with its DataNode, and the checksum is that of the last try."""
    file = generation.Part(Mnist(), "test", np.arange(20))
    next(iter(file))
    data = b"".join(file)
    assert file.bytes == len(data)
    assert file.checksum.hexdigest() == file_checksum(data)


@pytest.mark.parametrize(
    ("top", "local", "remedy"),
    [
        ("", False, "remove it with `dlobd clean --yes`"),
        ("/home/me/.cache/dlobd/native", True, "remove it with `dlobd clean --yes`"),
        ("/user/me", False, "remove it with `hdfs dfs -rm -r /user/me/dlobd/data/"),
    ],
)
def test_the_remedy_of_damaged_data_is_one_that_works_there(
    monkeypatch: pytest.MonkeyPatch, top: str, local: bool, remedy: str
) -> None:
    storage = LocalDirectory() if local else WebHdfs("http://127.0.0.1:9", "nobody")
    monkeypatch.setattr(type(storage), "exists", lambda self, path: True)
    monkeypatch.setattr(type(storage), "sizes", lambda self, path: {})
    with pytest.raises(ClusterError, match="The data set is damaged" if local else "data set in HDFS is") as caught:
        staging.stage(small(), storage, top, silent)
    assert caught.value.remedy.startswith(remedy)
