from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from dlobd.axes import MODELS
from dlobd.job.models.base import following_batches

pytestmark = pytest.mark.slow  # each imports TensorFlow

MNIST, CIFAR10 = (28, 28), (32, 32, 3)

PARAMETERS = {
    "softmax-regression": (MNIST, 10, 7_850),
    "mlp": (MNIST, 10, 101_770),
    "lenet": (MNIST, 10, 431_080),
    "cifar10-quick": (CIFAR10, 10, 145_578),
    "alexnet-cifar": (CIFAR10, 10, 1_756_426),
    "resnet20": (CIFAR10, 10, 269_722),
    "resnet56": (CIFAR10, 10, 853_018),
    "vgg16-cifar": (CIFAR10, 10, 14_986_698),
}
"""Model to (image shape, classes, parameters): the number that decides how many bytes an exchange moves."""

FOLLOWING = {"resnet20": 1_376, "resnet56": 4_064, "vgg16-cifar": 8_448}
"""Values of moving statistics, which an exchange moves as well."""

BATCH_AND_STEPS = {"alexnet-cifar": (50, 3), "resnet20": (50, 3), "resnet56": (20, 2), "vgg16-cifar": (20, 2)}
"""Those that take longer; of the others (200, 5)."""


@pytest.fixture(params=[pytest.param(row, id=row.name) for row in MODELS])
def name(request: pytest.FixtureRequest) -> str:
    if reason := request.param.reason():
        pytest.skip(reason)
    return request.param.name


def _build(name: str, seed: int = 1):
    shape, classes, _ = PARAMETERS[name]
    return MODELS.get(name)(shape, classes, seed)


def _digest(model) -> str:
    digest = hashlib.sha256()
    for variable in model.variables:
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()


def test_number_of_parameters_is_as_documented(name: str) -> None:
    model = _build(name)
    trained = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert trained == PARAMETERS[name][2]
    assert sum(int(np.prod(v.shape)) for v in model.variables) == trained + FOLLOWING.get(name, 0)
    assert all(v.dtype == "float32" for v in model.variables)
    assert len({v.name for v in model.variables}) == len(model.variables)


def test_images_become_logits(name: str) -> None:
    shape, classes, _ = PARAMETERS[name]
    logits = _build(name)(np.zeros((3, *shape), np.float32)).numpy()
    assert (logits.shape, logits.dtype) == ((3, classes), np.float32)
    for other in {MNIST, CIFAR10, (29, 31, 2)} - {shape}:
        assert MODELS.get(name)(other, 7, 1)(np.zeros((2, *other), np.float32), training=True).shape == (2, 7)


def test_equal_seeds_give_equal_variables(name: str) -> None:
    first, second, other = _build(name, 7), _build(name, 7), _build(name, 8)
    for one, same in zip(first.variables, second.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), same.numpy())
    assert (_digest(first) == _digest(other)) == (name == "softmax-regression")
    random = [v.numpy().ravel()[:9].tolist() for v in first.variables if len(v.shape) > 1 and np.any(v.numpy())]
    assert len({tuple(values) for values in random}) == len(random)  # no two variables have the same numbers


ELSEWHERE = """
import json, sys
from dlobd.job.launchers.imports import import_tensorflow
from dlobd.axes import MODELS
import_tensorflow()
from tests.contract.test_models import _build, _digest
digests = {row.name: _digest(_build(row.name, 7)) for row in MODELS}
print(json.dumps([digests, [name for name in sys.modules if name.split(".")[0] in ("keras", "tf_keras")]]))
"""


def test_another_process_makes_the_same_models_without_keras() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    digests, keras = json.loads(done.stdout.splitlines()[-1])
    assert digests == {row.name: _digest(_build(row.name, 7)) for row in MODELS}
    assert keras == []


def test_steps_on_synthetic_data_lower_the_loss(name: str) -> None:
    import tensorflow as tf

    shape, classes, _ = PARAMETERS[name]
    batch, steps = BATCH_AND_STEPS.get(name, (200, 5))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, batch)
    images = rng.random((classes, *shape), np.float32)[labels]
    model = _build(name)
    before = _digest(model)
    losses = []
    for step in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=model(images, training=True))
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        assert step > 0 or _digest(model) == before
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.01 * gradient)
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_evaluation_is_deterministic_and_uses_moving_statistics(name: str) -> None:
    shape, _, _ = PARAMETERS[name]
    images = np.random.default_rng(0).random((4, *shape), np.float32)
    model = _build(name)
    model(images, training=True)
    for module in following_batches(model):
        module.update_moving_statistics(*module.take_batch_statistics())
    before = _digest(model)
    once = model(images).numpy()
    np.testing.assert_array_equal(once, model(images, training=False).numpy())
    np.testing.assert_allclose(model(images[:1]).numpy(), once[:1], rtol=1e-3, atol=1e-3 * np.abs(once).max())
    assert _digest(model) == before
    assert bool(following_batches(model)) == (name in FOLLOWING)


@pytest.mark.parametrize("convolutional", sorted(PARAMETERS.keys() - {"softmax-regression", "mlp"}))
def test_data_without_images_is_refused(convolutional: str) -> None:
    with pytest.raises(ValueError, match=r"need images of height x width x channels; this data set has shape \(7,\)"):
        MODELS.get(convolutional)((7,), 10, 1)
