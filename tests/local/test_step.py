"""A step with its exchange inside and outside, with real TensorFlow; what it trains, and what it records."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.evidence.recorder import RecordedProcess
from tests import forks
from tests.recorded import read_all

CODE = """
import sys
from contextlib import nullcontext
from types import SimpleNamespace
import numpy as np
import tensorflow as tf
from dlobd import spans as kinds, tracing
from dlobd.job.models.softmax import build
from dlobd.job.training.optimisation import softmax_cross_entropy
from dlobd.job.training.optimisation import Sgd
from dlobd.job.training.optimisation import constant
from dlobd.job.training.step import Step
from dlobd.job.training.step import Workload

class Exchange:
    # of two ranks, the other of which has no gradients
    inside_step = sys.argv[2] == "inside"
    synchronous = sys.argv[2] != "asynchronous"
    calls = []
    def scope(self):
        return nullcontext()
    def run(self, function, arguments):
        return function(*arguments)
    def reduce(self, tf, tensors, ranks):
        self.calls.append(tf.executing_eagerly())
        if tf.executing_eagerly():  # ours have numpy's memory
            tensors = [tensor.numpy() for tensor in tensors]
        self.taken = len(tensors)
        return [tensor / ranks for tensor in tensors]

tracing.start(sys.argv[1], "chief")
exchange = Exchange()
model = build((2, 2), 3, 0)
job = SimpleNamespace(
    model="m", workers=2, steps=3, steps_per_epoch=3, learning_rate=0.5, weight_decay=0.0, warmup_epochs=0.0,
    max_seconds=0,
)
workload = Workload(model, softmax_cross_entropy, Sgd(tf, model.trainable_variables, job), constant)
step = Step(tf, job, workload, exchange)
images = np.random.default_rng(0).random((6, 2, 2), np.float32)
labels = np.arange(6, dtype=np.int32) % 3
with tracing.span(kinds.TRAINER):
    losses = [step(k, tf.constant(images), tf.constant(labels))[0] for k in range(3)]
tracing.flush()
print(losses)
print(model.weights.numpy().tolist())
print(exchange.calls)
print(exchange.taken)
"""


def run(way: str, directory: Path) -> tuple[RecordedProcess, list[str]]:
    """What three steps recorded, and what they printed: losses, weights, and for each `reduce` whether it was eager."""
    done = forks.first(["-c", CODE, directory, way])
    assert done.returncode == 0, done.stderr
    (process,) = read_all(directory)
    return process, done.stdout.splitlines()


@pytest.mark.slow
def test_a_step_is_one_span_or_three_parts(tmp_path: Path) -> None:
    """Both ways train the same. Inside, the step is the collective and `reduce` is compiled once; outside, the exchange
    is the collective, of layer channel, between two parts, and is called in each step."""
    inside, said = run("inside", tmp_path / "inside")
    assert [(s.name, s.rendezvous, s.call) for s in inside.spans[1:]] == [
        ("first step", "step", 0),
        ("step", "step", 1),
        ("step", "step", 2),
    ]
    assert said[2] == "[False]"

    outside, told = run("outside", tmp_path / "outside")
    parts = ["forward and backward", "exchange", "apply"]
    assert [s.name for s in outside.spans[1:]] == ["first step", *parts, "step", *parts, "step", *parts]
    assert told[2] == "[True, True, True]"
    exchanges = outside.named("exchange")
    assert [(s.layer, s.rendezvous, s.call) for s in exchanges] == [("channel", "exchange", k) for k in range(3)]
    for process in (inside, outside):
        assert [(s.call, s.layer) for s in process.steps()] == [(k, "tensorflow") for k in range(3)]
    by_id = {s.id: s for s in outside.spans}
    assert [by_id[s.parent].call for s in exchanges] == [0, 1, 2]
    assert [s.rendezvous for s in outside.steps()] == ["", "", ""]

    assert said[0] == told[0]
    assert said[1] == told[1]
    first, *_, last = map(float, told[0].strip("[]").split(", "))
    assert last < first


@pytest.mark.slow
def test_a_step_that_waits_for_no_rank_gives_gradients_alone(tmp_path: Path) -> None:
    """The loss is this rank's own, whole; the exchange is no collective, whose lane another one could have held up."""
    process, said = run("asynchronous", tmp_path)
    _, told = run("outside", tmp_path / "outside")
    assert int(said[3]) == int(told[3]) - 1
    assert float(said[0].strip("[]").split(",")[0]) == pytest.approx(2 * float(told[0].strip("[]").split(",")[0]))
    assert [(s.rendezvous, s.call) for s in process.named("exchange")] == [("", k) for k in range(3)]
