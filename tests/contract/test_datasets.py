import dataclasses

import numpy as np
import pytest

from dlobd.axes import DATASETS
from dlobd.experiment import files
from dlobd.job.datasets import tfrecord
from dlobd.job.datasets.base import dataset_of, layout_of

_ROWS = [pytest.param(row, id=row.name) for row in DATASETS if not row.reason()]


def test_data_sets_of_a_checkout_are_tested() -> None:
    assert {row.values[0].name for row in _ROWS} >= set(DATASETS.names()) - {"cifar10"}


@pytest.fixture(params=_ROWS)
def dataset(request: pytest.FixtureRequest):
    experiment = dataclasses.replace(files.load("softmax-mnist"), dataset=request.param.name)
    return dataset_of(experiment)


def test_name_is_that_of_its_row(dataset) -> None:
    assert DATASETS.get(dataset.name) is type(dataset)


def test_files_exist(dataset) -> None:
    files = dataset.files()
    assert len(set(files)) == len(files)
    assert (len(files) > 0) == (dataset.name != "synthetic")
    assert all(path.is_file() for path in files)


@pytest.mark.parametrize("split", ["train", "test"])
def test_samples_are_as_announced(dataset, split: str) -> None:
    size = dataset.train_size if split == "train" else dataset.test_size
    found, seen, lit = 0, set(), False
    for images, labels in dataset.chunks(split, range(size), 4096):
        assert images.shape == (len(labels), *dataset.shape)
        assert len(labels) == min(4096, size - found)
        assert images.dtype == dataset.dtype
        assert labels.dtype.kind in "iu"
        found += len(labels)
        seen |= set(labels.tolist())
        lit = lit or images.any()
    assert (found, seen, lit) == (size, set(range(dataset.classes)), True)


def test_an_order_that_is_asked_for_is_given(dataset) -> None:
    order = np.random.default_rng(0).permutation(dataset.test_size)[:50] if dataset.permutes else range(987, 1037)
    ((images, labels),) = dataset.chunks("test", order, 50)
    singles = list(dataset.chunks("test", order, 1))
    np.testing.assert_array_equal(np.concatenate([image for image, _ in singles]), images)
    np.testing.assert_array_equal(np.concatenate([label for _, label in singles]), labels)
    ((first, _),) = dataset.chunks("test", order[:1], 50)
    np.testing.assert_array_equal(first, images[:1])


def test_samples_survive_the_format_in_hdfs(dataset) -> None:
    ((images, labels),) = dataset.chunks("test", np.arange(100), 100)
    layout = layout_of(dataset)
    decoded, decoded_labels = tfrecord.decode_block(tfrecord.encode(images, labels, layout), layout)
    back = (decoded * 255).round().astype(np.uint8) if dataset.dtype == "uint8" else decoded
    np.testing.assert_array_equal(back, images)
    np.testing.assert_array_equal(decoded_labels, labels)
