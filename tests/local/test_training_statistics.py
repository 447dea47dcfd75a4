"""Batch normalisation over several ranks: what it normalises with, what moves, and what is stored.

With real TensorFlow, and ranks that are threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlobd.axes import MODELS
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.datasets import tfrecord
from dlobd.job.launchers.native import free_addresses
from dlobd.job.models.base import following_batches
from dlobd.job.training import evaluation as stored_models
from dlobd.job.training import optimisation
from dlobd.job.training.evaluation import Evaluation, evaluate
from dlobd.job.training.optimisation import Momentum, Sgd, softmax_cross_entropy
from dlobd.job.training.step import Step, Workload
from dlobd.job.training.trainer import StopVote
from tests import forks

pytestmark = pytest.mark.slow  # imports TensorFlow

SHAPE, CLASSES = (8, 8, 2), 3


class Meeting:
    """An exchange outside of the step, of ranks that are threads: the last that comes makes the means."""

    inside_step, synchronous = False, True

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks, timeout=110)
        self._given: dict[int, list[Any]] = {}
        self.calls = 0

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        return function(*arguments)

    def reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        self._given[threading.get_ident()] = [tensor.numpy() for tensor in tensors]
        if self._barrier.wait() == 0:
            self.calls += 1
        given = [self._given[rank] for rank in sorted(self._given)]
        assert len(given) == ranks
        means = [np.mean(each, axis=0) for each in zip(*given, strict=True)]
        self._barrier.wait()
        return means


class Alone:
    """An exchange of one rank, inside of the step."""

    inside_step, synchronous = True, True

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        return function(*arguments)

    def scope(self) -> Any:
        return nullcontext()

    def reduce(self, tf: Any, tensors: Sequence[Any], ranks: int) -> list[Any]:
        return list(tensors)


def job(ranks: int, **changes: Any) -> Any:
    values = {"model": "m", "workers": ranks, "epochs": 1, "steps": 9, "learning_rate": 0.1, "momentum": 0.9}
    rest = {"weight_decay": 1e-3, "warmup_epochs": 0.0, "steps_per_epoch": 9, "max_seconds": 0}
    return SimpleNamespace(**{**values, **rest, **changes})


def small(seed: int = 1) -> Any:
    from dlobd.job.models import layers

    initial = layers.Initial(seed)
    return layers.Chain(
        "small",
        layers.Convolution("conv", SHAPE[2], 4, 3, initial.he, bias=None),
        layers.BatchNorm("norm", 4),
        layers.relu,
        layers.spatial_mean,
        layers.Dense("logits", 4, CLASSES, initial.glorot),
    )


def step_of(model: Any, exchange: Any, ranks: int, **changes: Any) -> Step:
    import tensorflow as tf

    told = job(ranks, **changes)
    optimiser = Momentum(tf, model.trainable_variables, told)
    return Step(tf, told, Workload(model, softmax_cross_entropy, optimiser, optimisation.constant), exchange)


def batch(seed: int, mean: float = 0.0) -> tuple[Any, Any]:
    """Noise, the wider the higher the seed, with labels that mean nothing."""
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    images = rng.normal(mean, 1 + seed, (12, *SHAPE)).astype(np.float32)
    return tf.constant(images), tf.constant(rng.integers(0, CLASSES, 12).astype(np.int32))


def values(model: Any) -> list[Any]:
    return [variable.numpy() for variable in model.variables]


def test_ranks_with_different_data_keep_equal_models() -> None:
    """After each step all variables are equal on both ranks, the moving statistics with them, which are the means of
    what each rank had; one exchange a step carries everything."""
    models = [small(), small()]
    exchange = Meeting(2)
    steps = [step_of(model, exchange, 2) for model in models]
    batches = [batch(0), batch(1, mean=3.0)]
    filters = models[0].layers[0].weights.numpy()
    losses: dict[int, list[float]] = {0: [], 1: []}

    def take(rank: int, k: int) -> None:
        losses[rank].append(steps[rank](k, *batches[rank])[0])

    for k in range(3):
        threads = [threading.Thread(target=take, args=(rank, k)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        assert [len(each) for each in losses.values()] == [k + 1, k + 1]
        for one, other in zip(*map(values, models), strict=True):
            np.testing.assert_array_equal(one, other)
        if k == 0:
            norm = models[0].layers[1]
            import tensorflow as tf

            own = [tf.nn.conv2d(images, filters, 1, "SAME").numpy() for images, _ in batches]
            mean = np.mean([each.mean((0, 1, 2)) for each in own], axis=0)
            variance = np.mean([each.reshape(-1, 4).var(0, ddof=1) for each in own], axis=0)
            np.testing.assert_allclose(norm.moving_mean.numpy(), 0.1 * mean, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(norm.moving_variance.numpy(), 0.9 + 0.1 * variance, rtol=1e-4)
    assert losses[0] == losses[1]
    assert exchange.calls == 3


def test_what_one_rank_wishes_ends_all_after_the_same_step() -> None:
    """With the exchange outside of the step: the wish travels in it, so that a step still is one exchange, and trains
    as it does without. Between steps an agreement is one more."""
    import tensorflow as tf

    asked, plain = ([small() for _ in range(2)] for _ in range(2))
    exchange, other = Meeting(2), Meeting(2)
    steps = [step_of(model, exchange, 2, max_seconds=60) for model in asked]
    agreements = [StopVote(tf, job(2), exchange) for _ in range(2)]
    unasked = [step_of(model, other, 2) for model in plain]

    def take(rank: int) -> list[Any]:
        wishes = [steps[rank](k, *batch(rank), stop=(rank, k) == (1, 2))[1] for k in range(4)]
        ignored = [unasked[rank](k, *batch(rank), stop=True)[1] for k in range(4)]
        return [wishes, ignored, agreements[rank](0, rank == 1), agreements[rank](1, False)]

    with ThreadPoolExecutor(2) as ranks:
        said = list(ranks.map(take, range(2), timeout=110))
    assert said == [[[False, False, True, False], [False] * 4, True, False]] * 2
    assert (exchange.calls, other.calls) == (6, 4)
    for one, another in zip(values(asked[0]), values(plain[1]), strict=True):
        np.testing.assert_array_equal(one, another)


PROCESS = """
import hashlib, os, sys
from dlobd.channel import Channel
from dlobd.network.exchanges.base import Settings
from dlobd.network.exchanges.tf_ring import TfRing
from dlobd.job.training.trainer import StopVote
from tests.local.test_training_statistics import batch, job, small, step_of, values
rank, *peers = int(sys.argv[1]), *sys.argv[2:]
os.environ.update(TfRing.environment(peers, rank))
import tensorflow as tf
exchange = TfRing(Settings(Channel("tcp"), "tensorflow", 0, 0))
exchange.join(tf, peers, rank)
with exchange.scope():
    model = small()
    step = step_of(model, exchange, 2, warmup_epochs=0.5, max_seconds=60)
for k in range(3):
    loss, enough = step(k, *batch(rank, mean=3.0 * rank), stop=(rank, k) == (1, 1))
    print(loss, *(hashlib.sha256(value.tobytes()).hexdigest() for value in values(model)))
    print(enough)
agreement = StopVote(tf, job(2), exchange)
print(agreement(0, rank == 0), agreement(1, False))
"""


def test_ranks_that_are_processes_keep_equal_models() -> None:
    """With TensorFlow's own collectives inside of the step: to the last bit, the moving statistics with the rest. What
    one rank wishes, both know after the same step, and after the same agreement between steps."""
    peers = free_addresses(2)
    done = forks.run([["-c", PROCESS, rank, *peers] for rank in range(2)], 110)
    assert [rank.returncode for rank in done] == [0, 0], done
    first, second = (rank.stdout.splitlines() for rank in done)
    assert first == second
    assert first[1::2] == ["False", "True", "False"]
    assert first[6:] == ["True False"]
    assert len(set(first[4].split()) - set(first[2].split())) == 8  # the loss, and all seven variables: all move


def test_a_step_in_one_part_moves_what_one_in_three_parts_moves() -> None:
    """With the exchange inside, statistics pass through the trace, and none of its tensors is left on a layer."""
    whole, parts = small(), small()
    inside, outside = step_of(whole, Alone(), 1), step_of(parts, Meeting(1), 1)
    for k in range(3):
        assert inside(k, *batch(k))[0] == pytest.approx(outside(k, *batch(k))[0], rel=1e-5)
    for one, other in zip(values(whole), values(parts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="norm was not called with training=True"):
        whole.layers[1].take_batch_statistics()


def test_a_plain_module_needs_nothing_of_this() -> None:
    import tensorflow as tf

    class Plain(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.zeros([int(np.prod(SHAPE)), CLASSES]))

        def __call__(self, images: Any, training: bool = False) -> Any:
            return tf.matmul(tf.reshape(images, [-1, int(np.prod(SHAPE))]), self.weights)

    model = Plain()
    assert following_batches(model) == []
    step = step_of(model, Alone(), 1, learning_rate=0.01)
    losses = [step(k, *batch(0))[0] for k in range(5)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("exchange", [Alone(), Meeting(1)])
def test_a_loss_that_is_not_finite_ends_the_step(exchange: Any) -> None:
    """In one line that names the step: the first whose loss is not a number, and not the one that made it so."""
    import tensorflow as tf

    model = MODELS.get("mlp")(SHAPE, CLASSES, 1)
    told = job(1, learning_rate=1e30)
    workload = Workload(model, softmax_cross_entropy, Sgd(tf, model.trainable_variables, told), optimisation.constant)
    step = Step(tf, told, workload, exchange)
    step(0, *batch(0))
    with pytest.raises(FloatingPointError, match=r"^the loss became (nan|inf) at step 1: lower learning_rate$"):
        step(1, *batch(1))


class Stored:
    """A job whose storage is a directory, with a test set of noise in it."""

    def __init__(self, directory: Path, model: str, shape: tuple[int, ...]) -> None:
        self.run_dir = str(directory / "run")
        self.test_path = str(directory / "test.tfrecord")
        self.layout = tfrecord.Layout(shape, "float32", CLASSES)
        self._build = lambda: MODELS.get(model)(shape, CLASSES, 5)
        rng = np.random.default_rng(3)
        self.images = rng.normal(0.5, 1, (7, *shape)).astype(np.float32)
        self.labels = rng.integers(0, CLASSES, 7)
        Path(self.test_path).write_bytes(tfrecord.encode(self.images, self.labels, self.layout))

    def build_model(self) -> Any:
        return self._build()


def test_what_is_stored_has_the_moving_statistics(tmp_path: Path) -> None:
    """A SavedModel that is read back predicts what the trained model does without `training`, and its accuracy is that,
    as is that of the model in training, which its evaluation follows; a checkpoint has the same values."""
    import tensorflow as tf

    stored = Stored(tmp_path, "resnet20", SHAPE)
    model = stored.build_model()
    step = step_of(model, Alone(), 1, learning_rate=0.01)
    storage = LocalDirectory()
    evaluation = Evaluation(tf, stored, model, storage)
    for k in range(3):
        step(k, *batch(k, mean=1.0))
        evaluation()
    stored_models.save(tf, stored, model, storage)
    found = evaluate(tf, stored, storage)
    expected = model(stored.images, training=False).numpy()
    right = int((expected.argmax(1) == stored.labels).sum())
    assert found == {"samples": 7, "accuracy": right / 7}
    assert evaluation() == (7, right)

    loaded = tf.saved_model.load(f"{stored.run_dir}/model")
    np.testing.assert_allclose(loaded.logits(stored.images).numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loaded.logits(stored.images[:1]).numpy(), expected[:1], rtol=1e-3, atol=1e-3)
    untrained = stored.build_model()
    assert not np.allclose(untrained(stored.images).numpy(), expected, rtol=1e-2)

    stored_models.checkpoint(tf, stored, model, storage, 3)
    tf.train.Checkpoint(model=untrained).read(f"{stored.run_dir}/checkpoints/ckpt-3").assert_consumed()
    for one, other in zip(values(model), values(untrained), strict=True):
        np.testing.assert_array_equal(one, other)
