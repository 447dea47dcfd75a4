"""What a step does with what was reduced, against sequences computed by hand; with real TensorFlow."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlobd.axes import SCHEDULES
from dlobd.job.training import optimisation as schedules
from dlobd.job.training.optimisation import Momentum, Sgd
from dlobd.job.training.step import Update, Workload

pytestmark = pytest.mark.slow  # imports TensorFlow

PLAIN: dict[str, Any] = {
    "learning_rate": 0.5,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "epochs": 4,
    "steps": 40,
    "steps_per_epoch": 10,
    "num_epochs_per_decay": 0.0,
    "learning_rate_decay_factor": 0.0,
    "warmup_epochs": 0.0,
}


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
