"""Augmentation of batches, optimisers and schedules, with real TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlobd.axes import SCHEDULES
from dlobd.job.datasets import tfrecord
from dlobd.job.description import Job, part_name
from dlobd.job.launchers.base import Node
from dlobd.job.training import inputs
from dlobd.job.training import optimisation as schedules
from dlobd.job.training.augmentation import flip_crop
from dlobd.job.training.inputs import Deadlines
from dlobd.job.training.optimisation import Momentum, Sgd
from dlobd.job.training.step import Update, Workload

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
    ways = [(1, 2, 3), (2, 2, 3), (1, 1, 3), (1, 3, 2), (1, 2, 4), (3, 2, 1)]
    ways += [(1, 2, 3 + 2**20), (2**31 - 1, 2**32 - 1, 3)]
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
    node = Node(rank, ("", ""), Blocks(data) if way == "feed" else None)
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


ZERO = "momentum weight_decay num_epochs_per_decay learning_rate_decay_factor warmup_epochs"
PLAIN: dict[str, Any] = dict.fromkeys(ZERO.split(), 0.0)
PLAIN |= {"learning_rate": 0.5, "epochs": 4, "steps": 40, "steps_per_epoch": 10}


def job(**changes: Any) -> Any:
    return SimpleNamespace(**{**PLAIN, **changes})


def model() -> Any:
    import tensorflow as tf

    made = tf.Module()
    made.weights = tf.Variable([[1.0, 2.0]])
    made.bias = tf.Variable([3.0])
    return made


def update(trained: Any, optimiser: Any, schedule: Any = schedules.constant, **settings: Any) -> Any:
    import tensorflow as tf

    told = job(**settings)
    made = optimiser(tf, trained.trainable_variables, told)
    made = Update(tf, told, Workload(trained, None, made, schedule))
    return tf.function(lambda *gradients: made.apply(gradients))


def test_gradient_descent_and_momentum() -> None:
    trained = model()
    update(trained, Sgd)(np.float32([1]), np.float32([[2, 4]]))
    assert (trained.bias.numpy().tolist(), trained.weights.numpy().tolist()) == ([2.5], [[0.0, 0.0]])
    trained = model()
    step = update(trained, Momentum, momentum=0.5)
    found = []
    for gradient in (2.0, 0.0, 4.0):
        step(np.float32([gradient]), np.zeros((1, 2), np.float32))
        found.append(float(trained.bias.numpy()[0]))
    assert found == [2.0, 1.5, -0.75]
    assert trained.weights.numpy().tolist() == [[1.0, 2.0]]


def test_momentum_keeps_its_velocity_while_the_learning_rate_changes() -> None:
    """The learning rate is of the step, not of the velocity: v = 1, 1.5, 1.75 and lr = 1, 0.5, 0.25."""
    trained = model()
    settings = {"learning_rate_decay_factor": 0.5, "num_epochs_per_decay": 0.1, "learning_rate": 1.0}
    step = update(trained, Momentum, schedules.step, momentum=0.5, **settings)
    for _ in range(3):
        step(np.float32([1]), np.zeros((1, 2), np.float32))
    assert trained.bias.numpy().tolist() == [3 - 1 - 0.5 * 1.5 - 0.25 * 1.75]


@pytest.mark.parametrize("optimiser", [Sgd, Momentum])
def test_weight_decay_is_of_weights_and_not_of_biases(optimiser: Any) -> None:
    trained = model()
    update(trained, optimiser, weight_decay=0.5)(np.float32([0]), np.zeros((1, 2), np.float32))
    np.testing.assert_allclose(trained.weights.numpy(), [[0.75, 1.5]])
    assert trained.bias.numpy().tolist() == [3.0]


def test_weight_decay_leaves_batch_normalisation_alone() -> None:
    import tensorflow as tf

    from dlobd.job.models import layers

    filters = layers.Convolution("conv", 1, 2, 3, layers.Initial(1).he, bias=0.5)
    trained = layers.Chain("model", filters, layers.BatchNorm("norm", 2))
    before = {v.name: v.numpy() for v in trained.trainable_variables}
    trained(np.ones((2, 3, 3, 1), np.float32), training=True)
    statistics = [np.zeros(2, np.float32), np.ones(2, np.float32)]  # as they are: nothing moves
    gradients = [np.zeros(v.shape, np.float32) for v in trained.trainable_variables]
    update(trained, Sgd, weight_decay=0.5)(*statistics, *gradients)
    shrunk = [v.name for v in trained.trainable_variables if not np.array_equal(v.numpy(), before[v.name])]
    assert shrunk == ["conv/weights:0"]
    assert {tf.size(v).numpy() for v in trained.trainable_variables} == {18, 2}


def rates(schedule: Any, **settings: Any) -> list[float]:
    import tensorflow as tf

    told = job(**settings)
    compiled = tf.function(lambda k: schedules.learning_rate(tf, told, schedule, k))
    found = [compiled(tf.constant(k, tf.int64)) for k in range(told.steps)]
    assert {each.dtype for each in found} == {tf.float32}
    assert compiled.experimental_get_tracing_count() == 1  # the number of the step is a tensor
    return [float(each) for each in found]


def test_schedules_decay_by_steps_and_by_cosine() -> None:
    decays = {"num_epochs_per_decay": 2.0, "learning_rate_decay_factor": 0.1}
    np.testing.assert_allclose(rates(schedules.step, **decays), [0.5 * 0.1 ** (k // 20) for k in range(40)], rtol=1e-6)
    often = {"num_epochs_per_decay": 0.75, "learning_rate_decay_factor": 0.5}
    np.testing.assert_allclose(rates(schedules.step, **often), [0.5 * 0.5 ** (k // 7) for k in range(40)], rtol=1e-6)
    expected = [0.25 * (1 + math.cos(math.pi * k / 40)) for k in range(40)]
    np.testing.assert_allclose(rates(schedules.cosine), expected, rtol=1e-4)


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_warm_up_rises_linearly(name: str) -> None:
    """From one part of the learning rate to all of it, in every schedule; step counts its epochs from the start, cosine
    begins after it."""
    after = {
        "constant": lambda k: 0.5,
        "step": lambda k: 0.5 * 0.1 ** (k // 20),
        "cosine": lambda k: 0.25 * (1 + math.cos(math.pi * (k - 15) / 25)),
    }[name]
    decays = {"num_epochs_per_decay": 2.0, "learning_rate_decay_factor": 0.1}
    found = rates(SCHEDULES.get(name), warmup_epochs=1.5, **decays)
    np.testing.assert_allclose(found, [0.5 * (k + 1) / 15 if k < 15 else after(k) for k in range(40)], rtol=1e-5)


def test_the_number_of_the_step_is_counted_where_it_is_compiled() -> None:
    """Five updates of gradient one, with a warm-up of ten steps: 0.05 x (1 + 2 + 3 + 4 + 5)."""
    trained = model()
    step = update(trained, Sgd, warmup_epochs=1.0)
    for _ in range(5):
        step(np.float32([1]), np.zeros((1, 2), np.float32))
    np.testing.assert_allclose(trained.bias.numpy(), [3 - 0.75], rtol=1e-6)
    assert step.experimental_get_tracing_count() == 1
