"""TensorFlow without Keras: quicker, and Keras is there once somebody wants it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from dlobd.job.launchers.imports import import_tensorflow
import_tensorflow()
import_tensorflow()
import tensorflow as tf
print("keras" in sys.modules)
print(type(tf.keras.optimizers.SGD(0.1)).__name__)
import keras
print(keras.__name__)
"""


@pytest.mark.slow
def test_keras_comes_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout.split() == ["False", "SGD", "keras"], done.stderr[-2000:]
