"""Trains every model once through TensorFlowOnSpark and writes docs/results.md: python -m bench.models.

Rerun the command to resume. The page shows the cost of a model on this machine, not its best accuracy: small models
train for epochs, large ones for steps.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import command, publish
from bench.tables import Table, number
from dlobd.axes import MODELS
from dlobd.compare.figures import metric
from dlobd.errors import DlobdError
from dlobd.experiment import files
from dlobd.job.datasets.base import dataset_of
from dlobd.layers import LAYERS
from dlobd.record.run import Run
from dlobd.run import series_runner
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

FOR_STEPS = ("train_samples=1000", "test_samples=200", "epochs=1", "warmup_epochs=0", "min_accuracy=0")
"""Ten steps of two workers: what is too large to learn anything in minutes on two cores."""

POINTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "softmax-regression": ("softmax-mnist", ()),
    "mlp": ("softmax-mnist", ("model=mlp", "learning_rate=0.1", "epochs=1")),
    "lenet": ("lenet-mnist", ()),
    "cifar10-quick": ("cifar10-quick", ()),
    "alexnet-cifar": (
        "cifar10-quick",
        ("model=alexnet-cifar", "learning_rate=0.05", "weight_decay=0.0005", *FOR_STEPS),
    ),
    "resnet20": ("resnet20-cifar10", ()),
    "resnet56": ("resnet20-cifar10", ("model=resnet56", "executor_overhead_mb=2048", *FOR_STEPS)),
    "vgg16-cifar": (
        "resnet20-cifar10",
        ("model=vgg16-cifar", "learning_rate=0.05", "executor_overhead_mb=3072", *FOR_STEPS),
    ),
}
"""Model to the shipped experiment that it is trained by, and what is set otherwise."""


def points() -> dict[str, Experiment]:
    """Model to experiment; every model of the registry has one."""
    return {name: files.load(shipped, settings) for name, (shipped, settings) in POINTS.items()}


def parameters(experiment: Experiment) -> int:
    """Trainable parameters of the experiment's model."""
    data = dataset_of(experiment)
    model = MODELS.get(experiment.model)(data.shape, data.classes, experiment.seed)
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def table(runs: Mapping[str, Run], counts: Mapping[str, int]) -> Table:
    """One row a model: size, what it was trained on, its steps, how far it came, and its layers in seconds."""
    shown = [name for name in LAYERS if any(_layer(run, name) for run in runs.values())]
    columns = ["", "parameters", "data set", "steps", "step p50, ms", "samples/s", "first -> last loss", "accuracy",
               *(f"{LAYERS[name].title}, s" for name in shown), "wall, s"]  # fmt: skip
    rows, values = [], {}
    for model, run in runs.items():
        chosen: Any = run.configuration
        steps = [rank.step_p50_ns for rank in run.ranks if rank.step_p50_ns]
        middle = max(steps) / 1e6 if steps else None
        first, last = metric("first_loss")(run), metric("last_loss")(run)
        rows.append(
            [
                model, f"{counts[model]:,}", chosen.dataset, number(metric("steps")(run)), number(middle),
                number(metric("samples_per_second")(run)), f"{number(first)} -> {number(last)}",
                number(metric("test_accuracy")(run)), *(number((_layer(run, name) or 0) / 1e9) for name in shown),
                number((run.wall_ns or 0) / 1e9),
            ]
        )  # fmt: skip
        values[model] = {"run": run.run_id, "status": run.status, "parameters": counts[model]}
    says = (
        "One run each: two workers, launcher tfos, fed by Spark, on the embedded cluster. A step is the slower rank's, "
        "exchange included. Ten steps are too few to learn anything; the accuracy shows it."
    )
    return Table("Every model through TensorFlowOnSpark", says, columns, rows, values)


def _layer(run: Run, name: str) -> int | None:
    return next((layer.ns for layer in run.layers if layer.layer == name), None)


def main() -> int:
    """Return the exit code."""
    return command.run(command.parser("models", __doc__).parse_args(), "models", _models)


def _models(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    chosen = points()
    found = series_runner.run(series_runner.opened(chosen, 0, asked.out), 1, progress, progress.keep)
    runs = {cell.point: bundle.read() for cell, bundle in found.ended().items()}
    bad = [f"{name} ({run.reason})" for name, run in runs.items() if run.status != "ok"]
    if bad:
        raise DlobdError(f"Not every model trained: {'; '.join(bad)}.", "mend it, then run the same command")
    counts = {name: parameters(experiment) for name, experiment in chosen.items()}
    made = table({name: runs[name] for name in chosen}, counts)
    path = asked.docs / publish.PAGE
    facts = [*publish.machine(list(runs.values())), *publish.loaded(publish.busy_before(found))]
    publish.page(path, "models", facts, [made.markdown()])
    return [path]


if __name__ == "__main__":
    sys.exit(main())
