"""CIFAR-10: its records, both sets, and errors of missing or damaged files."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd import paths
from dlobd.axes import DATASETS
from dlobd.errors import SetupError, UsageError
from dlobd.experiment import files
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.datasets.base import Order, Samples, Split, dataset_of
from dlobd.job.datasets.cifar10 import Batch, Cifar10, Cifar10Partial
from dlobd.job.datasets.mnist import Mnist
from dlobd.job.generation import Part, write_part
from dlobd.report import summary
from dlobd.run import runner
from tests import records


@pytest.fixture(autouse=True)
def _nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "own" / "cifar-10"
    shutil.copytree(Cifar10Partial().files()[0].parent, folder)
    monkeypatch.setenv("DLOBD_DATA", str(folder.parent))
    return folder


def first(split: Split, samples: int) -> Samples:
    return next(Cifar10Partial().chunks(split, range(samples), samples))


def test_the_first_images_are_the_published_ones() -> None:
    _, labels = first("train", 10_000)
    assert labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert np.bincount(labels).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert first("test", 10)[1].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    images, labels = first("train", 2)
    records_ = gzip.decompress(Cifar10Partial().files()[0].read_bytes())
    for n, (image, label) in enumerate(zip(images, labels, strict=True)):
        record = records_[n * 3073 : (n + 1) * 3073]
        assert record[0] == label
        for row, column, colour in ((0, 0, 0), (0, 1, 0), (5, 31, 1), (31, 7, 2)):
            assert image[row, column, colour] == record[1 + colour * 1024 + row * 32 + column]


def test_the_whole_set_has_five_batches_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, size in (("train", Cifar10.train_size), ("test", Cifar10.test_size)):
        assert sum(batch.records for batch in Cifar10.batches[split]) == size
        assert sum(batch.records for batch in Cifar10Partial.batches[split]) == getattr(Cifar10Partial, f"{split}_size")
    folder = tmp_path / "cache" / "data" / "cifar-10"
    folder.mkdir(parents=True)

    def written(name: str, label: int) -> Batch:
        data = bytes([label]) + bytes(range(256)) * 12
        (folder / name).write_bytes(data * 2)
        return Batch(name, 2, hashlib.md5(data * 2, usedforsecurity=False).hexdigest())

    train = tuple(written(f"data_batch_{n}.bin", n) for n in (1, 2, 3, 4, 5))
    monkeypatch.setattr(Cifar10, "batches", {"train": train, "test": (written("test_batch.bin", 9),)})
    assert DATASETS.row("cifar10").reason() is None
    whole = DATASETS.get("cifar10")()
    assert [path.name for path in whole.files()] == [
        *(f"data_batch_{n}.bin" for n in (1, 2, 3, 4, 5)),
        "test_batch.bin",
    ]
    ((images, labels),) = whole.chunks("train", range(10), 10)
    assert labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert (images.shape, images[0, 1, 0].tolist()) == ((10, 32, 32, 3), [32, 32, 32])
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(SetupError, match=r"data_batch_3\.bin cannot be read.*Next: dlobd data fetch cifar10"):
        next(DATASETS.get("cifar10")().chunks("train", range(10), 10))


def test_a_missing_data_set_names_the_command_that_fetches_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="fetch it with `dlobd data fetch cifar10`, or use dataset=cifar10-partial"):
        dataset_of(dataclasses.replace(files.load("softmax-mnist"), dataset="cifar10"))
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "site-packages" / "dlobd")
    with pytest.raises(SetupError, match="not with an installed package; fetch the whole set") as caught:
        DATASETS.get("cifar10-partial")
    assert "\n" not in caught.value.line


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "is truncated: 1000 of 2834548 bytes"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9] + b"123456789"), "has md5"),
        (lambda path: path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1)), "truncated|has md5"),
    ],
)
def test_a_damaged_file_is_one_line(own_data: Path, damage: Any, what: str) -> None:
    damage(own_data / "test_batch_first1000.bin.gz")
    with pytest.raises(SetupError, match=what) as caught:
        first("test", 1)
    assert "test_batch_first1000.bin.gz" in caught.value.what
    assert "\n" not in caught.value.line
    assert caught.value.remedy


def test_content_that_is_not_the_published_one_is_refused(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_data / "test_batch_first1000.bin.gz"
    data = path.read_bytes()
    batch = Batch(path.name, 1_000, "0" * 32, (len(data), hashlib.md5(data, usedforsecurity=False).hexdigest()))
    monkeypatch.setattr(Cifar10Partial, "batches", {**Cifar10Partial.batches, "test": (batch,)})
    with pytest.raises(
        SetupError, match=r"the content of data file .* has md5 371f65da31ad652f5e24b3699a3e6515, not 0000"
    ):
        first("test", 1)


@pytest.mark.parametrize(
    ("name", "asked", "size"), [("train_samples", 50_000, 10_000), ("test_samples", 10_000, 1_000)]
)
def test_more_than_the_partial_set_has_is_refused(name: str, asked: int, size: int) -> None:
    overrides = ["dataset=cifar10-partial", "train_samples=10000", "test_samples=1000", f"{name}={asked}"]
    with pytest.raises(UsageError) as caught:
        files.load("softmax-mnist", overrides)
    assert caught.value.line == (
        f"--set {name}={asked}: {name} {asked} exceeds the {size} samples of cifar10-partial: CIFAR-10, partial: "
        "10,000 of 50,000 training and 1,000 of 10,000 test images. "
        "Next: `dlobd data fetch cifar10`, then dataset=cifar10"
    )


def test_a_run_on_a_set_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    experiment = files.load("softmax-mnist", ["dataset=cifar10", "train_samples=50000"])
    with pytest.raises(SetupError, match="dlobd data fetch cifar10"):
        runner.run(experiment, tmp_path / "runs", lambda line: pytest.fail(line))
    assert not (tmp_path / "runs").exists()


def test_a_partial_set_is_named_and_a_whole_set_needs_no_files_to_be_read() -> None:
    stored = dataclasses.asdict(files.load("softmax-mnist")) | {"dataset": "cifar10", "train_samples": 50_000}
    assert files.from_dict(stored).train_samples == 50_000
    configuration = records.run_record()["configuration"]
    partial = records.run(configuration={**configuration, "dataset": "cifar10-partial"})
    assert (
        "on cifar10-partial (CIFAR-10, partial: 10,000 of 50,000 training and 1,000 of 10,000 test images), workers 2"
    ) in summary.settings(partial)
    whole = records.run(configuration={**configuration, "dataset": "cifar10"})
    assert "on cifar10, workers 2" in summary.settings(whole)


class Mislabelled(Mnist):
    def chunks(self, split: Split, order: Order, samples: int) -> Iterator[Samples]:
        for images, labels in super().chunks(split, order, samples):
            yield images, labels + np.uint8(7)


def test_a_label_outside_of_the_classes_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="mnist, test sample 0: label 14 is not between 0 and 9") as caught:
        write_part(Part(Mislabelled(), "test", range(50)), LocalDirectory(), str(tmp_path / "part"))
    assert "\n" not in caught.value.line
    assert list(tmp_path.iterdir()) == []
