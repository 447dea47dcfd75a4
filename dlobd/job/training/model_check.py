"""Checks a user's model in a separate process: builds the model, and computes the gradients of a step.

`dlobd.run.own_model` starts it at the start of a run, with a JSON object on stdin. Each line on stdout is a JSON string
that names the next stage; the last line is the object `{"wrong": ...}` with an error message, or an empty string.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from dlobd import user_file
from dlobd.axes import LOSSES, MODELS
from dlobd.errors import DlobdError, UsageError
from dlobd.job.launchers.imports import import_tensorflow
from dlobd.network.exchanges.base import Tensor, TensorFlow
from dlobd.user_file import MemberRef

SAMPLES = 4  # batch size: a number that is unlikely to be a size in the model


def main() -> int:
    """Run the check. Output of the model goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        wrong = ""
        try:
            for stage in _stages(request):
                print(json.dumps(stage), file=out, flush=True)
        except DlobdError as error:
            wrong = error.what
        except BaseException as error:  # noqa: BLE001  any error of the file, also an exit, becomes one line
            wrong = user_file.error_line(error, MemberRef(request["model"]).path or request["model"])
        print(json.dumps({"wrong": wrong}), file=out, flush=True)
    os._exit(0)  # end at once, because the file may have started threads


def _stages(request: dict[str, Any]) -> Iterator[str]:
    yield "importing TensorFlow"
    import_tensorflow()
    import tensorflow as tf

    model, shape, classes = request["model"], tuple(request["shape"]), request["classes"]
    yield "loading the file"
    build = MODELS.resolve(MemberRef(model), request["sha256"], lambda: str(request["text"]))
    yield "building the model"
    tf.random.set_seed(request["seed"])
    built = build(shape, classes, request["seed"])
    if not isinstance(built, tf.Module):
        raise UsageError(f"model {model} returns an object of type {type(built).__name__}, and a tf.Module is needed")
    if not callable(built):
        raise UsageError(
            f"model {model} returns a tf.Module that cannot be called: it needs __call__(images, training)"
        )
    if not built.trainable_variables:
        raise UsageError(f"model {model} has no trainable variables")
    yield "calling the model"
    _step(tf, built, request, shape, classes)


def _step(tf: TensorFlow, model: Tensor, request: dict[str, Any], shape: tuple[int, ...], classes: int) -> None:
    """Compile forward and backward like a training step, and forward for a batch of any size like the stored model."""
    name, dataset = request["model"], request["dataset"]

    def logits_of(images: Tensor, training: bool) -> Tensor:
        logits = model(images, training=training)
        needed = f"data set {dataset} has {classes} classes: {(SAMPLES, classes)} is needed"
        if not tf.is_tensor(logits):
            raise UsageError(f"model {name} returns an object of type {type(logits).__name__}, not a tensor of logits")
        if logits.shape.rank != 2 or logits.shape[1] != classes or logits.shape[0] not in (None, images.shape[0]):
            actual = tuple(logits.shape) if logits.shape.rank is not None else "unknown"
            raise UsageError(f"model {name} returns logits of shape {actual}, and {needed}")
        if logits.dtype != tf.float32:
            raise UsageError(f"model {name} returns logits of {logits.dtype.name}, and float32 is needed")
        return logits

    def forward_and_backward(images: Tensor, labels: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            loss = LOSSES.get(request["loss"])(tf, logits_of(images, training=True), labels)
        gradients = tape.gradient(loss, model.trainable_variables)
        pairs = zip(model.trainable_variables, gradients, strict=True)
        if unused := [variable.name for variable, gradient in pairs if gradient is None]:
            raise UsageError(f"model {name}: the loss does not depend on {', '.join(unused)}")
        return loss

    unconverted = tf.autograph.experimental.do_not_convert
    random = tf.random.Generator.from_seed(request["seed"])
    images = random.uniform((SAMPLES, *shape))
    labels = random.uniform((SAMPLES,), maxval=classes, dtype=tf.int32)
    tf.function(unconverted(forward_and_backward))(images, labels)
    any_size = tf.TensorSpec([None, *shape], tf.float32)
    tf.function(unconverted(lambda images: logits_of(images, training=False))).get_concrete_function(any_size)


if __name__ == "__main__":
    sys.exit(main())
