"""Generated images: the same for the same seed however they are made, learnable, and never all of them in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.datasets.base import dataset_of, layout_of
from dlobd.job.datasets.synthetic import CHUNK_BYTES, Synthetic, shape_of
from dlobd.job.datasets.tfrecord import Layout
from dlobd.job.training import checkpointing, evaluation

SHAPE = (32, 32, 3)
CHUNK = CHUNK_BYTES // 3072
DIGEST = "bfb37b517aeb3eb91e47818df2caf49b92bf829c3dc13a8ef587aa18e605c7e6"


def made(seed: int = 1, shape: tuple[int, ...] = SHAPE, classes: int = 10) -> Synthetic:
    return Synthetic(shape, classes, 10**9, 10**9, seed)


def taken(dataset: Synthetic, order: Any, samples: int, split: Any = "train") -> tuple[NDArray[Any], NDArray[Any]]:
    pieces = list(dataset.chunks(split, order, samples))
    assert all(len(labels) == samples for _, labels in pieces[:-1])
    return np.concatenate([images for images, _ in pieces]), np.concatenate([labels for _, labels in pieces])


def test_a_seed_gives_the_same_samples_for_ever() -> None:
    """Philox is defined by its algorithm: the digest holds on every machine and with every version of numpy."""
    images, labels = taken(made(seed=7), range(CHUNK - 2, CHUNK + 2), 4)
    assert hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest() == DIGEST


@pytest.mark.parametrize("samples", [1, 7, CHUNK, CHUNK + 1, 5000])
def test_samples_do_not_depend_on_how_they_are_asked_for(samples: int) -> None:
    whole, labels = taken(made(), range(3 * CHUNK), 3 * CHUNK)
    stretch = range(CHUNK - 5, 2 * CHUNK + 9)
    some, some_labels = taken(made(), stretch, samples)
    np.testing.assert_array_equal(some, whole[stretch])
    np.testing.assert_array_equal(some_labels, labels[stretch])


def test_seeds_splits_and_positions_differ() -> None:
    samples = [
        taken(made(1), range(3), 3)[0],
        taken(made(2), range(3), 3)[0],
        taken(made(1), range(3), 3, "test")[0],
        taken(made(1), range(CHUNK, CHUNK + 3), 3)[0],
    ]
    assert len({image.tobytes() for images in samples for image in images}) == 12


@pytest.mark.parametrize("shape", [(1,), (784,), (28, 28), (32, 32, 3), (5, 33, 2, 4)])
@pytest.mark.parametrize("classes", [1, 2, 1000])
def test_any_shape_and_number_of_classes(shape: tuple[int, ...], classes: int) -> None:
    images, labels = taken(made(shape=shape, classes=classes), range(20_000 if shape == (1,) else 200), 20_000)
    assert (images.shape[1:], images.dtype) == (shape, np.uint8)
    assert 0 <= labels.min() <= labels.max() < classes
    assert layout_of(made(shape=shape, classes=classes)).record_bytes > images[0].size


def test_the_class_can_be_seen_in_the_image() -> None:
    """The class whose mean training image is nearest is the right one for test images: far better than chance."""
    dataset = made()
    images, labels = taken(dataset, range(1000), 1000)
    means = np.stack([images[labels == label].mean(axis=0) for label in range(10)])
    tests, wanted = taken(dataset, range(200), 200, "test")
    distances = ((tests[:, np.newaxis].astype(np.float64) - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == wanted).mean() > 0.95
    assert np.bincount(labels, minlength=10).min() > 50
    assert len(np.unique(images)) > 200  # noise and patterns, over all of the range


def test_an_experiment_says_what_is_made() -> None:
    overrides = ["dataset=synthetic", "synthetic_shape=224x224x3", "synthetic_classes=1000", "train_samples=1000000"]
    dataset = dataset_of(files.load("softmax-mnist", [*overrides, "seed=5"]))
    assert (dataset.shape, dataset.classes, dataset.dtype) == ((224, 224, 3), 1000, "uint8")
    assert (dataset.train_size, dataset.test_size) == (1_000_000, 10_000)
    assert dataset.files() == []


@pytest.mark.parametrize("text", ["", "32x", "x32", "0x3", "32x32x3x3x3", "32 x 32", "-1", "1.5", "३२", "32X32"])
def test_a_shape_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="such as 32x32x3"):
        shape_of(text)
    with pytest.raises(UsageError, match="synthetic_shape must be 1 to 4 sizes") as caught:
        files.load("softmax-mnist", ["dataset=synthetic", f"synthetic_shape={text}"])
    assert caught.value.line.startswith(f"--set synthetic_shape={text}: ")
    assert "\n" not in caught.value.line


def test_images_without_height_and_width_cannot_be_flipped() -> None:
    overrides = ["dataset=synthetic", "synthetic_shape=784", "augment=flip-crop"]
    with pytest.raises(UsageError, match="augment flip-crop needs images with height and width, not of shape 784"):
        files.load("softmax-mnist", overrides)


def test_no_batch_of_the_test_set_is_too_large_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Storage(LocalDirectory):
        def stream(self, path: str, piece_bytes: int, purpose: str) -> Iterator[bytes]:
            asked.append(piece_bytes)
            return iter(())

    monkeypatch.setattr(checkpointing, "download", lambda *arguments: None)
    tf = SimpleNamespace(saved_model=SimpleNamespace(load=lambda path: SimpleNamespace(logits=None)))
    layouts = [Layout((28, 28)), Layout((224, 224, 3)), Layout((8192, 8192))]
    for layout in layouts:
        job: Any = SimpleNamespace(run_dir="", test_path="", layout=layout)
        assert evaluation.evaluate(tf, job, Storage()) == {"samples": 0, "accuracy": 0.0}
    counts = [size / layout.record_bytes for size, layout in zip(asked, layouts, strict=True)]
    assert counts == [1000, (32 << 20) // layouts[1].record_bytes, 1]
