from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlobd.errors import SetupError, UsageError
from dlobd.experiment import files
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.datasets import mnist, tfrecord
from dlobd.job.datasets.base import dataset_of, layout_of, partition
from dlobd.job.datasets.synthetic import CHUNK_BYTES, Synthetic, shape_of
from dlobd.job.datasets.tfrecord import Layout
from dlobd.job.training import evaluation, inputs


def _samples(n: int, values: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, values), np.uint8), rng.integers(0, 10, n, np.uint8)


def _layout(values: int) -> tfrecord.Layout:
    return tfrecord.Layout((values,), classes=128)


@pytest.mark.parametrize("values", [1, 784, 3072])
def test_decode_is_the_inverse_of_encode(values: int) -> None:
    images, labels = _samples(50, values)
    got_images, got_labels = tfrecord.decode_block(tfrecord.encode(images, labels, _layout(values)), _layout(values))
    assert got_images.dtype == np.float32
    assert got_labels.dtype == np.int32
    np.testing.assert_array_equal((got_images * 255).round().astype(np.uint8), images)
    np.testing.assert_array_equal(got_labels, labels)
    assert got_images.max() <= 1


def test_any_changed_byte_around_image_and_label_is_noticed() -> None:
    """Of a record's fixed bytes none can change unseen; the Example's checksum is HDFS's business."""
    images, labels = _samples(2, 4)
    layout = _layout(4)
    data = tfrecord.encode(images, labels, layout)
    free = {
        *range(layout.image.start, layout.image.stop),
        layout.label.start,
        *range(layout.record_bytes - 4, layout.record_bytes),
    }
    for at in range(layout.record_bytes):
        block = bytearray(data)
        block[layout.record_bytes + at] ^= 1
        if at in free:
            tfrecord.decode_block(bytes(block), layout)
        else:
            with pytest.raises(ValueError, match="record 1 of a block"):
                tfrecord.decode_block(bytes(block), layout)


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_torn_block_is_refused(cut: int) -> None:
    data = tfrecord.encode(*_samples(2, 16), _layout(16))
    with pytest.raises(ValueError, match="does not consist of records"):
        tfrecord.decode_block(data[:-cut], _layout(16))
    with pytest.raises(ValueError, match="does not consist of records"):
        tfrecord.decode_block(b"", _layout(16))


@pytest.mark.parametrize(
    ("classes", "size"), [(1, 1), (10, 1), (128, 1), (129, 2), (1000, 2), (16_384, 2), (16_385, 3)]
)
def test_labels_have_the_bytes_of_the_largest_class(classes: int, size: int) -> None:
    layout = tfrecord.Layout((4,), classes=classes)
    labels = np.unique(np.array([0, 1, 127, 128, 300, classes // 2, classes - 1]).clip(max=classes - 1))
    data = tfrecord.encode(np.zeros((len(labels), 4), np.uint8), labels, layout)
    assert layout.label_bytes == size
    assert len(data) == len(labels) * layout.record_bytes
    np.testing.assert_array_equal(tfrecord.decode_block(data, layout)[1], labels)


@pytest.mark.parametrize("label", [-1, 10, 200])
def test_a_label_outside_of_the_classes_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match=f"label {label} is not between 0 and 9"):
        tfrecord.encode(np.zeros((2, 4), np.uint8), np.array([3, label]), tfrecord.Layout((4,), classes=10))


def test_samples_that_were_not_announced_are_refused() -> None:
    labels = np.zeros(2, np.uint8)
    for images in (np.zeros((2, 5), np.uint8), np.zeros((2, 4), np.float32), np.zeros((2, 2, 2), np.uint8)):
        with pytest.raises(ValueError, match=r"not uint8 \[4\]"):
            tfrecord.encode(images, labels, _layout(4))
    with pytest.raises(ValueError, match="3 images have 2 labels"):
        tfrecord.encode(np.zeros((3, 4), np.uint8), labels, _layout(4))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dtype", "classes"), [((7,), "uint8", 10), ((3, 2), "float32", 20_000)])
def test_both_ways_to_decode_agree(shape: tuple[int, ...], dtype: str, classes: int) -> None:
    import tensorflow as tf

    layout = tfrecord.Layout(shape, dtype, classes)
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (40, *shape)).astype(dtype)
    labels = rng.integers(0, classes, 40)
    data = tfrecord.encode(images, labels, layout)
    expected = tfrecord.decode_block(data, layout)
    records = tf.reshape(tf.io.decode_raw(data, tf.uint8), [-1, layout.record_bytes])
    for one, other in zip(inputs._decoded(tf, records, layout), expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other)
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    examples = [data[at : at + layout.record_bytes][layout.example] for at in range(0, len(data), layout.record_bytes)]
    parsed = tf.io.parse_example(examples, features)
    assert parsed["label"].numpy().tolist() == labels.tolist()
    assert parsed["image"].numpy().tolist() == [image.tobytes() for image in images]


@pytest.mark.slow
def test_tensorflow_reads_the_files_as_standard_examples(tmp_path: Path) -> None:
    import tensorflow as tf

    images, labels = mnist.Mnist().load("test")
    path = tmp_path / "test.tfrecord"
    path.write_bytes(tfrecord.encode(images[:500], labels[:500], tfrecord.Layout((28, 28), classes=10)))
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    read = [tf.io.parse_single_example(record, features) for record in tf.data.TFRecordDataset(str(path))]
    assert [row["image"].numpy() for row in read] == [image.tobytes() for image in images[:500]]
    assert [int(row["label"]) for row in read] == labels[:500].tolist()


def test_partitions_are_seeded_or_stretches() -> None:
    parts = [part.tolist() for part in partition(120, 3, 1, 120)]
    assert [len(part) for part in parts] == [40, 40, 40]
    whole = [position for part in parts for position in part]
    assert sorted(whole) == list(range(120)) != whole
    assert [part.tolist() for part in partition(120, 3, 1, 120)] == parts
    assert [part.tolist() for part in partition(120, 3, 2, 120)] != parts
    for seed in (1, 2):
        parts = partition(120, 3, seed, 60, permutes=False)
        assert [list(part) for part in parts] == [list(range(n, n + 20)) for n in (0, 20, 40)]


@pytest.mark.parametrize(("workers", "samples"), [(3, 100), (2, 121), (1, 130)])
def test_unequal_parts_are_refused(workers: int, samples: int) -> None:
    """Ranks with unequal parts would hang in a collective."""
    with pytest.raises(ValueError, match="cannot be split evenly"):
        partition(120, workers, 1, samples)


def test_mnist_is_the_published_data_set() -> None:
    images, labels = mnist.Mnist().load("train")
    assert (images.shape, images.dtype) == ((60_000, 28, 28), np.uint8)
    assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert mnist.Mnist().load("test")[0].shape == (10_000, 28, 28)


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for path in mnist.Mnist().files()[2:]:
        shutil.copy(path, folder)
    monkeypatch.setenv("DLOBD_DATA", str(tmp_path))
    return folder


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "is truncated: 1000 of 4542 bytes"),
        (_flipped, "has md5 [0-9a-f]{32}, not ec29112dd5afa0611ce80d1b7f02629c"),
        (lambda path: path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1)), "(is truncated|has md5)"),
    ],
)
def test_a_damaged_data_file_is_one_line(own_data: Path, damage: Callable[[Path], object], what: str) -> None:
    assert mnist.Mnist().files()[2].parent == own_data
    assert len(mnist.Mnist().load("test")[1]) == 10_000
    damage(own_data / "t10k-labels-idx1-ubyte.gz")
    with pytest.raises(SetupError, match=f"t10k-labels-idx1-ubyte.gz {what}") as caught:
        mnist.Mnist().load("test")
    assert "\n" not in caught.value.line
    assert "DLOBD_DATA" in caught.value.remedy


def test_a_data_folder_without_mnist_leaves_the_shipped_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cifar-10").mkdir()
    monkeypatch.setenv("DLOBD_DATA", str(tmp_path))
    assert len(mnist.Mnist().load("test")[1]) == 10_000


SHAPE = (32, 32, 3)
CHUNK = CHUNK_BYTES // 3072
DIGEST = "bfb37b517aeb3eb91e47818df2caf49b92bf829c3dc13a8ef587aa18e605c7e6"


def made(seed: int = 1, shape: tuple[int, ...] = SHAPE, classes: int = 10) -> Synthetic:
    return Synthetic(shape, classes, 10**9, 10**9, seed)


def taken(dataset: Synthetic, order: Any, samples: int, split: Any = "train") -> tuple[NDArray[Any], NDArray[Any]]:
    pieces = list(dataset.chunks(split, order, samples))
    assert all(len(labels) == samples for _, labels in pieces[:-1])
    return np.concatenate([images for images, _ in pieces]), np.concatenate([labels for _, labels in pieces])


def test_generated_samples_differ_by_seed_split_and_position() -> None:
    images, labels = taken(made(seed=7), range(CHUNK - 2, CHUNK + 2), 4)
    assert hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest() == DIGEST
    samples = [
        taken(made(1), range(3), 3)[0],
        taken(made(2), range(3), 3)[0],
        taken(made(1), range(3), 3, "test")[0],
        taken(made(1), range(CHUNK, CHUNK + 3), 3)[0],
    ]
    assert len({image.tobytes() for images in samples for image in images}) == 12


@pytest.mark.parametrize("samples", [1, 7, CHUNK, CHUNK + 1, 5000])
def test_samples_do_not_depend_on_how_they_are_asked_for(samples: int) -> None:
    whole, labels = taken(made(), range(3 * CHUNK), 3 * CHUNK)
    stretch = range(CHUNK - 5, 2 * CHUNK + 9)
    some, some_labels = taken(made(), stretch, samples)
    np.testing.assert_array_equal(some, whole[stretch])
    np.testing.assert_array_equal(some_labels, labels[stretch])


@pytest.mark.parametrize("shape", [(1,), (784,), (28, 28), (32, 32, 3), (5, 33, 2, 4)])
@pytest.mark.parametrize("classes", [1, 2, 1000])
def test_any_shape_and_number_of_classes(shape: tuple[int, ...], classes: int) -> None:
    images, labels = taken(made(shape=shape, classes=classes), range(20_000 if shape == (1,) else 200), 20_000)
    assert (images.shape[1:], images.dtype) == (shape, np.uint8)
    assert 0 <= labels.min() <= labels.max() < classes
    assert layout_of(made(shape=shape, classes=classes)).record_bytes > images[0].size


def test_the_class_can_be_seen_in_the_image() -> None:
    """Nearest class means classify test images far better than chance."""
    dataset = made()
    images, labels = taken(dataset, range(1000), 1000)
    means = np.stack([images[labels == label].mean(axis=0) for label in range(10)])
    tests, wanted = taken(dataset, range(200), 200, "test")
    distances = ((tests[:, np.newaxis].astype(np.float64) - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == wanted).mean() > 0.95
    assert np.bincount(labels, minlength=10).min() > 50
    assert len(np.unique(images)) > 200  # noise and patterns, over all of the range


def test_settings_of_generated_images() -> None:
    overrides = ["dataset=synthetic", "synthetic_shape=224x224x3", "synthetic_classes=1000", "train_samples=1000000"]
    dataset = dataset_of(files.load("softmax-mnist", [*overrides, "seed=5"]))
    assert (dataset.shape, dataset.classes, dataset.dtype) == ((224, 224, 3), 1000, "uint8")
    assert (dataset.train_size, dataset.test_size) == (1_000_000, 10_000)
    assert dataset.files() == []
    overrides = ["dataset=synthetic", "synthetic_shape=784", "augment=flip-crop"]
    with pytest.raises(
        UsageError, match="augment flip-crop needs images with height and width, but their shape is 784"
    ):
        files.load("softmax-mnist", overrides)


@pytest.mark.parametrize("text", ["", "32x", "x32", "0x3", "32x32x3x3x3", "32 x 32", "-1", "1.5", "३२", "32X32"])
def test_a_shape_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="as in 32x32x3"):
        shape_of(text)
    with pytest.raises(UsageError, match="synthetic_shape must be 1 to 4 positive sizes") as caught:
        files.load("softmax-mnist", ["dataset=synthetic", f"synthetic_shape={text}"])
    assert caught.value.line.startswith(f"--set synthetic_shape={text}: ")
    assert "\n" not in caught.value.line


def test_no_batch_of_the_test_set_is_too_large_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Storage(LocalDirectory):
        def stream(self, path: str, piece_bytes: int, purpose: str) -> Iterator[bytes]:
            asked.append(piece_bytes)
            return iter(())

    monkeypatch.setattr(evaluation, "download", lambda *arguments: None)
    tf = SimpleNamespace(saved_model=SimpleNamespace(load=lambda path: SimpleNamespace(logits=None)))
    layouts = [Layout((28, 28)), Layout((224, 224, 3)), Layout((8192, 8192))]
    for layout in layouts:
        job: Any = SimpleNamespace(run_dir="", test_path="", layout=layout)
        assert evaluation.evaluate(tf, job, Storage()) == {"samples": 0, "accuracy": 0.0}
    counts = [size / layout.record_bytes for size, layout in zip(asked, layouts, strict=True)]
    assert counts == [1000, (32 << 20) // layouts[1].record_bytes, 1]
