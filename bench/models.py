"""Train every model once through TensorFlowOnSpark, and write docs/results.md: python -m bench.models [--loaded].

Rerun the command to resume. The page shows the cost of a model on this machine, not its best accuracy: small models
train for epochs, large models for a number of steps.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from analysis.studies.runs import experiment as experiment_of
from bench import command, publish
from bench.tables import Table, number
from dlobd.axes import MODELS
from dlobd.compare.figures import layer_s, metric
from dlobd.errors import DlobdError
from dlobd.experiment import files
from dlobd.job.datasets.base import dataset_of
from dlobd.layers import LAYERS
from dlobd.record.run import Run
from dlobd.run import series_runner
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

STEPS = "train_samples=1000 test_samples=200 epochs=1 warmup_epochs=0 min_accuracy=0"
"""Settings for ten steps of two workers, for models too large to train within minutes on two cores."""

POINTS = {
    "softmax-regression": "softmax-mnist",
    "mlp": "softmax-mnist model=mlp learning_rate=0.1 epochs=1",
    "lenet": "lenet-mnist",
    "cifar10-quick": "cifar10-quick",
    "alexnet-cifar": f"cifar10-quick model=alexnet-cifar learning_rate=0.05 weight_decay=0.0005 {STEPS}",
    "resnet20": "resnet20-cifar10",
    "resnet56": f"resnet20-cifar10 model=resnet56 executor_overhead_mb=2048 {STEPS}",
    "vgg16-cifar": f"resnet20-cifar10 model=vgg16-cifar learning_rate=0.05 executor_overhead_mb=3072 {STEPS}",
}
"""Shipped experiment and changed settings for each model."""


def points() -> dict[str, Experiment]:
    """Return the experiment of each model in the registry."""
    chosen = {name: line.split() for name, line in POINTS.items()}
    return {name: files.load(shipped, settings) for name, (shipped, *settings) in chosen.items()}


def parameters(experiment: Experiment) -> int:
    """Count the trainable parameters of the experiment's model."""
    data = dataset_of(experiment)
    model = MODELS.get(experiment.model)(data.shape, data.classes, experiment.seed)
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def table(runs: Mapping[str, Run], counts: Mapping[str, int]) -> Table:
    """Build one row per model: size, data set, steps, loss, accuracy, and layers in seconds."""
    shown = [name for name in LAYERS if any(layer_s(run, name) for run in runs.values())]
    columns = ["parameters", "data set", "steps", "step p50, ms", "samples/s", "first -> last loss", "accuracy"]
    rows = []
    for model, run in runs.items():
        steps = [rank.step_p50_ns for rank in run.ranks if rank.step_p50_ns]
        cells = [f"{counts[model]:,}", experiment_of(run).dataset, number(metric("steps")(run))]
        cells += [number(max(steps) / 1e6 if steps else None), number(metric("samples_per_second")(run))]
        cells += [" -> ".join(number(metric(name)(run)) for name in ("first_loss", "last_loss"))]
        cells += [number(metric("test_accuracy")(run)), *(number(layer_s(run, name) or 0) for name in shown)]
        rows.append([model, *cells, number((run.wall_ns or 0) / 1e9)])
    says = (
        "One run per model: two workers, launcher tfos, input feed, embedded cluster. Step times are of the slower "
        "rank and include the exchange. Ten steps are too few for a meaningful accuracy."
    )
    titles = [f"{LAYERS[name].title}, s" for name in shown]
    return Table("All models through TensorFlowOnSpark", says, ["", *columns, *titles, "wall, s"], rows)


def main() -> int:
    """Run the command; return the exit code."""
    return command.run(command.parser("models", __doc__).parse_args(), "models", _models)


def _models(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    chosen = points()
    found = series_runner.run(series_runner.opened(chosen, 0, asked.out), 1, progress, progress.keep)
    runs = {cell.point: bundle.read() for cell, bundle in found.ended().items()}
    bad = [f"{name} ({run.reason})" for name, run in runs.items() if run.status != "ok"]
    if bad:
        raise DlobdError(f"Not every model trained: {'; '.join(bad)}.", "correct the cause, then rerun the command")
    counts = {name: parameters(experiment) for name, experiment in chosen.items()}
    made = table({name: runs[name] for name in chosen}, counts)
    busy = publish.busy_before(found)
    return [publish.of_runs(asked.docs, "models", list(runs.values()), busy, [made.markdown()])]


if __name__ == "__main__":
    sys.exit(main())
