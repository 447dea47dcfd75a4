import numpy as np
import pytest

from dlobd.registry import MODELS

pytestmark = pytest.mark.slow  # each imports TensorFlow

PARAMETERS = {"softmax-regression": ((28, 28), 10, 7_850)}
"""Model to (image shape, classes, parameters): the number that decides how many bytes an exchange moves."""


@pytest.fixture(params=[pytest.param(row, id=row.name) for row in MODELS])
def name(request: pytest.FixtureRequest) -> str:
    """Each model that is available here."""
    if reason := request.param.reason():
        pytest.skip(reason)
    return request.param.name


def _build(name: str, seed: int = 1):
    shape, classes, _ = PARAMETERS[name]
    return MODELS.get(name)(shape, classes, seed)


def test_number_of_parameters_is_as_documented(name: str) -> None:
    """What is trained is exactly what is published."""
    model = _build(name)
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == PARAMETERS[name][2]
    assert all(v.dtype == "float32" for v in model.trainable_variables)


def test_images_become_logits(name: str) -> None:
    """Float images [n, *shape] give float32 logits [n, classes]."""
    shape, classes, _ = PARAMETERS[name]
    logits = _build(name)(np.zeros((3, *shape), np.float32)).numpy()
    assert (logits.shape, logits.dtype) == ((3, classes), np.float32)


def test_equal_seeds_give_equal_variables(name: str) -> None:
    """Every rank starts from the same values."""
    first, second = _build(name, 7), _build(name, 7)
    for one, other in zip(first.trainable_variables, second.trainable_variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_steps_on_synthetic_data_lower_the_loss(name: str) -> None:
    """The gradient reaches every variable, and following it helps."""
    import tensorflow as tf

    shape, classes, _ = PARAMETERS[name]
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 200)
    images = rng.random((classes, *shape), np.float32)[labels]
    model = _build(name)
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=model(images, training=True))
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.01 * gradient)
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
