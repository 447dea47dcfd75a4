"""Random flips and crops: real, repeatable, and the same however a rank gets its batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd.job.datasets import tfrecord
from dlobd.job.description import Job, part_name
from dlobd.job.launchers.base import Node
from dlobd.job.training import inputs
from dlobd.job.training.augmentation import flip_crop
from dlobd.job.training.inputs import Deadlines

pytestmark = pytest.mark.slow  # each imports TensorFlow

LAYOUT = tfrecord.Layout((12, 10, 3), "uint8", 10)
BATCH, STEPS, EPOCHS = 8, 3, 2


@pytest.fixture
def tf() -> Any:
    import tensorflow

    return tensorflow


def images(n: int = 64, shape: tuple[int, ...] = (12, 10, 3)) -> np.ndarray[Any, np.dtype[np.float32]]:
    """No two pixels are equal, and none is black: a pixel tells where it was."""
    values = np.arange(1, n * int(np.prod(shape)) + 1, dtype=np.float32)
    return values.reshape(n, *shape)


def crops(one: np.ndarray[Any, Any]) -> dict[bytes, tuple[int, int, bool]]:
    """Every image that may come of one: its bytes to (top, left, flipped)."""
    height, width = one.shape[:2]
    padded = np.pad(one, [(4, 4), (4, 4), *[(0, 0)] * (one.ndim - 2)])
    found = {}
    for top in range(9):
        for left in range(9):
            crop = padded[top : top + height, left : left + width]
            found[crop.tobytes()] = (top, left, False)
            found[crop[:, ::-1].tobytes()] = (top, left, True)
    return found


@pytest.mark.parametrize("shape", [(12, 10, 3), (12, 10)])
def test_each_image_is_one_of_its_crops(tf: Any, shape: tuple[int, ...]) -> None:
    before = images(400, shape)
    after = flip_crop(tf, tf.constant(before), 1, 0, 0)
    assert (after.shape, after.dtype) == (before.shape, tf.float32)
    chosen = [crops(one)[other.tobytes()] for one, other in zip(before, after.numpy(), strict=True)]
    tops, lefts, flips = zip(*chosen, strict=True)
    assert set(tops) == set(lefts) == set(range(9))
    assert 140 < sum(flips) < 260
    assert abs(np.corrcoef(tops, lefts)[0, 1]) < 0.2


def test_seed_batch_and_step_decide_it_alone(tf: Any) -> None:
    batch = tf.constant(images())

    def augmented(seed: int, first: int, step: int) -> bytes:
        return flip_crop(tf, batch, seed, first, step).numpy().tobytes()

    compiled = tf.function(lambda images, step: flip_crop(tf, images, 1, 2, step))
    assert augmented(1, 2, 3) == augmented(1, 2, 3) == compiled(batch, tf.constant(3, tf.int64)).numpy().tobytes()
    ways = [
        (1, 2, 3),
        (2, 2, 3),
        (1, 1, 3),
        (1, 3, 2),
        (1, 2, 4),
        (3, 2, 1),
        (1, 2, 3 + 2**20),
        (2**31 - 1, 2**32 - 1, 3),
    ]
    assert len({augmented(*way) for way in ways}) == len(ways)


def test_tensorflows_own_generator_is_not_touched(tf: Any) -> None:
    tf.random.set_seed(1)
    first = tf.random.uniform([3]).numpy().tolist()
    tf.random.set_seed(1)
    flip_crop(tf, tf.constant(images(2)), 1, 0, 0)
    assert tf.random.uniform([3]).numpy().tolist() == first


class Blocks:
    def __init__(self, data: bytes) -> None:
        size = BATCH * LAYOUT.record_bytes
        self._blocks = iter([data[at : at + size] for at in range(0, len(data), size)] * EPOCHS)

    def next_block(self) -> bytes | None:
        return next(self._blocks, None)


def batches(
    tf: Any, directory: Path, way: str, rank: int, augment: str, file: int | None = None
) -> Iterator[inputs.Batch]:
    rng = np.random.default_rng(rank if file is None else file)
    samples = STEPS * BATCH
    data = tfrecord.encode(
        rng.integers(0, 256, (samples, *LAYOUT.shape), np.uint8), rng.integers(0, 10, samples), LAYOUT
    )
    (directory / part_name(rank)).write_bytes(data)
    known: dict[str, Any] = {field.name: "" for field in dataclasses.fields(Job)}
    told: dict[str, Any] = {"input": way, "seed": 5, "epochs": EPOCHS, "batch_size": BATCH, "train_dir": str(directory)}
    told |= {"workers": 1, "train_samples": STEPS * BATCH, "max_steps": 0}
    files_ = {"image_shape": LAYOUT.shape, "dtype": LAYOUT.dtype, "classes": LAYOUT.classes, "augment": augment}
    job = Job(**{**known, **told, **files_})
    node = Node("worker" if rank else "chief", max(0, rank - 1), ("", ""), Blocks(data) if way == "feed" else None)
    return inputs.batches(tf, job, node, Deadlines(lambda cause: None))


def arrays(
    tf: Any, directory: Path, way: str, rank: int, augment: str, file: int | None = None
) -> list[tuple[bytes, bytes]]:
    return [(x.numpy().tobytes(), y.numpy().tobytes()) for x, y in batches(tf, directory, way, rank, augment, file)]


def test_both_inputs_give_the_same_augmented_batches(tf: Any, tmp_path: Path) -> None:
    fed = {rank: arrays(tf, tmp_path, "feed", rank, "flip-crop") for rank in (0, 1)}
    read = {rank: arrays(tf, tmp_path, "read", rank, "flip-crop") for rank in (0, 1)}
    assert fed == read
    assert {1 - rank: arrays(tf, tmp_path, "feed", rank, "flip-crop", file=1 - rank) for rank in (0, 1)} == read
    plain = arrays(tf, tmp_path, "feed", 0, "none")
    assert len({x for batches_ in (fed[0], fed[1], plain) for x, _ in batches_}) == 2 * EPOCHS * STEPS + STEPS
    assert [y for _, y in fed[0]] == [y for _, y in plain]


@pytest.mark.parametrize("way", ["feed", "read"])
def test_without_augmentation_the_images_are_those_of_the_file(tf: Any, tmp_path: Path, way: str) -> None:
    data = [batch[0].numpy() for batch in batches(tf, tmp_path, way, 0, "none")]
    records = (tmp_path / part_name(0)).read_bytes()
    np.testing.assert_array_equal(np.concatenate(data[:STEPS]), tfrecord.decode_block(records, LAYOUT)[0])


def test_nothing_is_tuned_that_could_outlive_the_pipeline(
    tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tf.data's tuning thread may sleep for up to a minute after the last step, and the trainer waits for it."""
    tuned = []
    begin = tf.data.Dataset.__iter__
    monkeypatch.setattr(
        tf.data.Dataset, "__iter__", lambda self: tuned.append(self.options().autotune.enabled) or begin(self)
    )
    assert len(arrays(tf, tmp_path, "read", 0, "flip-crop")) == EPOCHS * STEPS
    assert tuned == [False]
