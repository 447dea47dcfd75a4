"""Scaling of a training with its workers: speed-up and efficiency, of the wall time and of the training alone.

    speed-up of the wall time   wall time of the fewest workers / wall time of n workers
    speed-up of the training    samples per second of n workers / samples per second of the fewest workers
    efficiency                  speed-up x fewest workers / n

Ratios are computed within repeats; the table has their medians, with the intervals of `dlobd.compare.median.median`.
The wall time includes start-up, which more workers do not shorten; the training does not. Figures from at
least six runs per point have a 95 % interval.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.studies import layer_bars, pictures, script
from analysis.studies.runs import by_repeat, experiment, settings_name
from analysis.studies.script import Shown
from dlobd.compare import median as medians
from dlobd.compare.figures import throughput, wall_s
from dlobd.compare.runset import Repeat, RunSet
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report.text import MEDIANS, median
from dlobd.run.machine_noise import CLIENT

Values = Sequence[float | None]
"""One value per run or per repeat."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Runs of one number of workers, compared with the fewest workers. `rates` are samples/s after the first ten steps.

    speed_ups, trainings: speed-ups of wall time and training, in common repeats; empty for the fewest workers.
    """

    workers: int
    runs: int
    walls_s: Values
    rates: Values
    speed_ups: Values
    trainings: Values
    fewest: int
    layers: layer_bars.Seconds

    def efficiencies(self, of: Values) -> Values:
        """Divide speed-ups by the ratio of workers."""
        return [None if value is None else value * self.fewest / self.workers for value in of]


Curves = dict[str, list[Scaled]]
"""Points in ascending order of workers, by the differing settings other than workers and batch."""


def curves(runs: RunSet) -> Curves:
    """Group runs that differ only in their number of workers.

    Raises:
        UsageError: there is only one number of workers, or runs of a group trained on different numbers of samples.
    """
    found = {}
    for label, group in runs.grouped(lambda run: settings_name(runs, run, "workers", "batch_size")).items():
        by_workers = group.grouped(lambda run: experiment(run).workers)
        if len(by_workers) > 1:
            samples = group.grouped(lambda run: run.metrics.train_samples)
            if len(samples) > 1:
                ids = " and ".join(f"{own.runs[0].run_id} ({count})" for count, own in samples.items())
                raise UsageError(
                    f"Runs {ids} trained on different numbers of samples: their wall times cannot be compared.",
                    "name runs with equal train_samples and epochs",
                )
            found[label or "all runs"] = _curve(dict(sorted(by_workers.items())))
    if not found:
        counts = sorted({experiment(run).workers for run in runs.runs})
        raise UsageError(
            f"There is nothing to scale: no runs differ only in workers (workers: {', '.join(map(str, counts))}).",
            "name runs of at least two numbers of workers, for example of `dlobd sweep scaling-quick`",
        )
    return found


def _curve(by_workers: dict[int, RunSet]) -> list[Scaled]:
    fewest = min(by_workers)
    base = by_repeat(by_workers[fewest])
    return [
        Scaled(
            workers,
            len(group.members),
            tuple(map(wall_s, group.runs)),
            tuple(map(throughput, group.runs)),
            *(((), ()) if workers == fewest else _speed_ups(by_repeat(group), base)),
            fewest,
            layer_bars.means(group.runs),
        )
        for workers, group in by_workers.items()
    ]


def _speed_ups(own: Mapping[Repeat, Run], base: Mapping[Repeat, Run]) -> tuple[Values, Values]:
    """Compute the speed-ups of wall time and training in common repeats."""
    common = sorted(own.keys() & base.keys())
    before, after = ([each[repeat] for repeat in common] for each in (base, own))
    walls = medians.ratios(map(wall_s, before), map(wall_s, after))
    return walls, medians.ratios(map(throughput, after), map(throughput, before))


def kind(runs: RunSet) -> str:
    """Describe the kind of scaling: strong or weak."""
    every = [experiment(run) for run in runs.runs]
    own = {one.batch_size for one in every}
    together = {one.batch_size * one.workers for one in every}
    if len(together) == 1:
        return f"Strong scaling: every point has the global batch of {min(together)}, and the same training samples."
    if len(own) == 1:
        return f"Weak scaling: every worker has the batch of {min(own)}; the training samples are the same."
    return "Neither strong nor weak scaling: both the batch of a worker and the global batch vary."


def warnings(runs: RunSet) -> list[str]:
    """List the warnings about the figures."""
    found = []
    here = [run for run in runs.runs if run.noise is None or run.noise.machine != CLIENT]
    if here:
        cores = min(int(run.platform.get("cores") or 0) for run in here) or "an unknown number of"
        found.append(
            f"All workers shared one machine of {cores} cores with the rest of the stack: more workers add no "
            "cores, unlike in a cluster."
        )
    enough = medians.fewest_repeats()
    if any(len(group.members) < enough for group in runs.grouped(lambda run: run.experiment_key).values()):
        found.append(f"A 95 % interval needs {enough} repeats.")
    return [f"warning: {line}" for line in found]


def table(found: Curves) -> pd.DataFrame:
    """Build one row per curve and number of workers; see `dlobd.report.text.median`."""
    rows = []
    for label, curve in found.items():
        for one in curve:
            wall, training = (
                ["1" if one.workers == one.fewest else median(values) for values in (ratios, one.efficiencies(ratios))]
                for ratios in (one.speed_ups, one.trainings)
            )
            rows.append((label, one.workers, one.runs, median(one.walls_s), *wall, median(one.rates), *training))
    of_training = ["samples/s", "of training", "efficiency of training"]
    return pd.DataFrame(rows, columns=["", "workers", "runs", "wall, s", "speed-up", "efficiency", *of_training])


def report(asked: Namespace) -> Shown:
    """Return tables and picture."""
    runs = script.usable(asked.runs)
    found = curves(runs)
    bars = {f"{label}, {one.workers}": one.layers for label, curve in found.items() for one in curve}
    pieces = (
        kind(runs),
        *warnings(runs),
        f"\nMedians of runs, and of ratios to the fewest workers within repeats; {MEDIANS}",
        table(found).to_string(index=False),
        "\nLayers, mean seconds of the wall time, by workers",
        layer_bars.table(bars, "wall").to_string(float_format="%.3f", na_rep="-"),
    )
    figure = Figure(figsize=(13, 4.6 + 0.2 * len(bars)), layout="constrained")
    left, right = figure.subplots(1, 2)
    _lines(left, found)
    layer_bars.draw(right, bars, "mean seconds of the wall time")
    right.set_title("Layers by workers", loc="left")
    right.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
    figure.suptitle(kind(runs), fontsize="medium")
    return pieces, figure


def _lines(axes: Axes, found: Curves) -> None:
    """Draw the speed-up of wall time (solid) and training (dashed) over workers, and the line of efficiency 1."""
    for number, (label, curve) in enumerate(found.items()):
        for name, style, ratios in (
            ("wall", "-", {one.workers: one.speed_ups for one in curve}),
            ("training", "--", {one.workers: one.trainings for one in curve}),
        ):
            colour = pictures.LINE_COLOURS[number % len(pictures.LINE_COLOURS)]
            known = {workers: middle for workers, each in ratios.items() if (middle := medians.median(each))}
            middles = {curve[0].workers: 1.0} | {workers: one.value for workers, one in known.items()}
            axes.plot(list(middles), list(middles.values()), style, color=colour, marker="o", label=f"{label}: {name}")
            for workers, ratio in known.items():
                if ratio.low is not None and ratio.high is not None:
                    axes.plot([workers, workers], [ratio.low, ratio.high], color=colour, marker="_", linewidth=1)
    counts = sorted({one.workers for curve in found.values() for one in curve})
    axes.plot(counts, [count / counts[0] for count in counts], ":", color="grey", label="efficiency 1")
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_ylabel(f"speed-up over {counts[0]}")
    axes.set_title("Speed-up, with 95 % intervals from six repeats on", loc="left")
    axes.legend(fontsize="small", frameon=False)
