"""The data set as a job reads it: equal files, one per worker, reused by name; on a real directory of this machine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dlobd.errors import ClusterError
from dlobd.experiment import files
from dlobd.hadoop.checksum import FileChecksum
from dlobd.hadoop.file_system import LocalDirectory, WebHdfs
from dlobd.job.datasets import parts
from dlobd.job.datasets.base import Order, Samples, Split
from dlobd.job.datasets.mnist import Mnist
from dlobd.job.datasets.tfrecord import Layout
from dlobd.run import staging
from dlobd.schema import Experiment


def file_checksum(data: bytes) -> str:
    checksum = FileChecksum()
    checksum.add(data)
    return checksum.hexdigest()


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


def test_what_is_there_is_used_again(tmp_path: Path) -> None:
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
    monkeypatch.setattr(parts, "PIECE_BYTES", 10_000)
    pieces = staging.stage(small(), LocalDirectory(), str(tmp_path / "pieces"), silent)
    assert asked == [10_000 // whole.layout.record_bytes] * 3
    for one, other in ((whole.train_dir, pieces.train_dir), (str(Path(whole.test_path).parent),) * 2):
        for path in Path(one).glob("*.tfrecord"):
            assert path.read_bytes() == (Path(other) / path.name).read_bytes()
    texts = [Path(staged.train_dir).with_name("_SUCCESS").read_text() for staged in (whole, pieces)]
    assert [*json.loads(texts[0]).values()] == [*json.loads(texts[1]).values()]


def test_a_write_that_begins_anew_gets_all_pieces_again(tmp_path: Path) -> None:
    """No first half of a file is lost with its DataNode, and the checksum is that of the last try."""
    file = parts.Part(Mnist(), "test", np.arange(20))
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
