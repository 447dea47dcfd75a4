"""Tries a model that is not dlobd's own, in a process of its own: builds it, and takes a step's gradients with it.

`dlobd.run.own_model` starts it before anything else, and gives it one JSON object on stdin. Each line on stdout is a
JSON string, what is done next; the last one is an object, `{"wrong": ...}`, where wrong is a line, or empty.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from dlobd import own_file
from dlobd.axes import LOSSES, MODELS
from dlobd.errors import DlobdError
from dlobd.job.launchers.framework import import_tensorflow

SAMPLES = 4
"""A batch of so many: a number that is unlikely to be one of the model's own."""


def main() -> int:
    """Entry point. What the model itself prints goes to stderr."""
    told = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        wrong = ""
        try:
            for doing in _try(told):
                print(json.dumps(doing), file=out, flush=True)
        except DlobdError as error:
            wrong = error.what
        except _Wrong as error:
            wrong = str(error)
        except BaseException as error:  # noqa: BLE001  whatever the file does, it becomes one line
            own = own_file.named(told["model"])
            wrong = own_file.error_line(error, own.path if own else told["model"])
        print(json.dumps({"wrong": wrong}), file=out, flush=True)
    os._exit(0)  # whatever threads the file has started


class _Wrong(Exception):
    """The model does not keep the contract of `dlobd.job.models.base`."""


def _try(told: dict[str, Any]) -> Iterator[str]:
    """Does one thing after the other, and says before each what it is."""
    yield "importing TensorFlow"
    import_tensorflow()
    import tensorflow as tf

    model, shape, classes = told["model"], tuple(told["shape"]), told["classes"]
    yield "loading the file"
    own = own_file.named(model)
    build = own_file.load(own, told["sha256"], lambda: str(told["text"])) if own else MODELS.get(model)
    yield "building the model"
    tf.random.set_seed(told["seed"])
    built = build(shape, classes, told["seed"])
    if not isinstance(built, tf.Module):
        raise _Wrong(f"model {model} gives an object of type {type(built).__name__}, and a tf.Module is needed")
    if not callable(built):
        raise _Wrong(f"model {model} gives a tf.Module that cannot be called: it needs __call__(images, training)")
    if not built.trainable_variables:
        raise _Wrong(f"model {model} has no trainable variables")
    yield "calling the model"
    _step(tf, built, told, shape, classes)


def _step(tf: Any, model: Any, told: dict[str, Any], shape: tuple[int, ...], classes: int) -> None:
    """Forward and backward as a compiled step does it, and forward for a batch of any size, as it is stored."""
    name, dataset = told["model"], told["dataset"]

    def logits_of(images: Any, training: bool) -> Any:
        logits = model(images, training=training)
        needed = f"data set {dataset} has {classes} classes: {(SAMPLES, classes)} is needed"
        if not tf.is_tensor(logits):
            raise _Wrong(
                f"model {name} gives an object of type {type(logits).__name__}, and a tensor of logits is needed"
            )
        if logits.shape.rank != 2 or logits.shape[1] != classes or logits.shape[0] not in (None, images.shape[0]):
            found = tuple(logits.shape) if logits.shape.rank is not None else "unknown"
            raise _Wrong(f"model {name} gives logits of shape {found}, and {needed}")
        if logits.dtype != tf.float32:
            raise _Wrong(f"model {name} gives logits of {logits.dtype.name}, and float32 is needed")
        return logits

    def forward_and_backward(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = LOSSES.get(told["loss"])(tf, logits_of(images, training=True), labels)
        gradients = tape.gradient(loss, model.trainable_variables)
        pairs = zip(model.trainable_variables, gradients, strict=True)
        if unused := [variable.name for variable, gradient in pairs if gradient is None]:
            raise _Wrong(f"model {name}: the loss does not depend on {', '.join(unused)}")
        return loss

    as_it_is = tf.autograph.experimental.do_not_convert
    random = tf.random.Generator.from_seed(told["seed"])
    images = random.uniform((SAMPLES, *shape))
    labels = random.uniform((SAMPLES,), maxval=classes, dtype=tf.int32)
    tf.function(as_it_is(forward_and_backward))(images, labels)
    any_size = tf.TensorSpec([None, *shape], tf.float32)
    tf.function(as_it_is(lambda images: logits_of(images, training=False))).get_concrete_function(any_size)


if __name__ == "__main__":
    sys.exit(main())
