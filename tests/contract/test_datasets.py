import math

import numpy as np
import pytest

from dlobd.job.datasets import tfrecord
from dlobd.registry import DATASETS

_ROWS = [pytest.param(row, id=row.name) for row in DATASETS]


@pytest.fixture(params=_ROWS)
def dataset(request: pytest.FixtureRequest):
    """Each data set that is available here."""
    if reason := request.param.reason():
        pytest.skip(reason)
    return DATASETS.get(request.param.name)()


def test_name_is_that_of_its_row(dataset) -> None:
    """A data set knows its own name."""
    assert DATASETS.get(dataset.name) is type(dataset)


def test_files_exist(dataset) -> None:
    """The files it names are there, and each once."""
    files = dataset.files()
    assert len(set(files)) == len(files) > 0
    assert all(path.is_file() for path in files)


@pytest.mark.parametrize("split", ["train", "test"])
def test_loaded_samples_are_as_announced(dataset, split: str) -> None:
    """Number, shape, type and labels are what the class says without opening a file."""
    images, labels = dataset.load(split)
    size = dataset.train_size if split == "train" else dataset.test_size
    assert images.shape == (size, *dataset.shape)
    assert labels.shape == (size,)
    assert images.dtype == labels.dtype == np.uint8
    assert set(labels.tolist()) == set(range(dataset.classes))
    assert images.any()


def test_samples_survive_the_format_in_hdfs(dataset) -> None:
    """A block of records decodes to the same images and labels."""
    images, labels = (part[:100] for part in dataset.load("test"))
    values = math.prod(dataset.shape)
    decoded, decoded_labels = tfrecord.decode_block(tfrecord.encode(images, labels), tfrecord.Layout(values))
    np.testing.assert_array_equal((decoded * 255).round().astype(np.uint8), images.reshape(100, values))
    np.testing.assert_array_equal(decoded_labels, labels)
