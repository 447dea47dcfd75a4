"""How the same training scales with its workers: speed-up and efficiency, of the wall and of the training alone.

    speed-up of the wall        wall of the fewest workers / wall of n workers
    speed-up of the training    samples per second of n workers / those of the fewest
    efficiency                  speed-up x fewest workers / n

Ratios are taken within repeats; the table has their medians, with intervals as `dlobd.attribution.statistics.median`
has them. Start-up, which no worker makes shorter, is part of the wall and not of the training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlobd.attribution import statistics
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report import layer_bars, pictures
from dlobd.report.chosen import Chosen, Repeat, configuration, grouped
from dlobd.report.summary import throughput, wall_s
from dlobd.report.text import MEDIANS, median
from dlobd.run.machine_noise import CLIENT

Values = tuple[float | None, ...]
"""One a run, or one a repeat."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Runs of one number of workers against those of the fewest. Samples a second: after the first ten steps.

    speed_ups, trainings: of the wall and of the training, one a repeat that both have; empty for the fewest workers.
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
        """Speed-ups as shares of that of equally many more workers."""
        return tuple(None if value is None else value * self.fewest / self.workers for value in of)


Curves = dict[str, list[Scaled]]
"""What sets the runs apart, besides workers and batch, to each number of workers, rising."""


def curves(chosen: Chosen) -> Curves:
    """Every group of runs that differ in their workers.

    Raises:
        UsageError: there is only one number of workers, or runs of a group trained on different numbers of samples.
    """
    found = {}
    for label, runs in grouped(chosen.runs, lambda run: chosen.label(run, "workers", "batch_size")).items():
        by_workers = grouped(runs, lambda run: configuration(run).workers)
        if len(by_workers) > 1:
            _check_equal_work(runs)
            found[label or "all runs"] = _curve(chosen, dict(sorted(by_workers.items())))
    if not found:
        counts = sorted({configuration(run).workers for run in chosen.runs})
        raise UsageError(
            f"There is nothing to scale: no runs differ in workers alone (workers: {', '.join(map(str, counts))}).",
            "name runs of at least two numbers of workers, for example of `dlobd sweep scaling-quick`",
        )
    return found


def _curve(chosen: Chosen, by_workers: dict[int, list[Run]]) -> list[Scaled]:
    fewest = min(by_workers)
    base = chosen.by_repeat(by_workers[fewest])
    return [
        Scaled(
            workers,
            len(runs),
            tuple(map(wall_s, runs)),
            tuple(map(throughput, runs)),
            *(((), ()) if workers == fewest else _speed_ups(chosen.by_repeat(runs), base)),
            fewest,
            layer_bars.means(runs),
        )
        for workers, runs in by_workers.items()
    ]


def _speed_ups(own: Mapping[Repeat, Run], base: Mapping[Repeat, Run]) -> tuple[Values, Values]:
    """Of the wall and of the training, in the repeats that both have."""
    common = sorted(own.keys() & base.keys())
    walls = tuple(_over(wall_s(base[repeat]), wall_s(own[repeat])) for repeat in common)
    return walls, tuple(_over(throughput(own[repeat]), throughput(base[repeat])) for repeat in common)


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _check_equal_work(runs: Sequence[Run]) -> None:
    samples = grouped(runs, lambda run: run.metrics.train_samples)
    if len(samples) > 1:
        ids = " and ".join(f"{each[0].run_id} ({count})" for count, each in samples.items())
        raise UsageError(
            f"Runs {ids} trained on different numbers of samples: their walls do not compare.",
            "name runs of equal train_samples and epochs",
        )


def kind(chosen: Chosen) -> str:
    """What is kept while the workers vary, in a sentence."""
    every = [configuration(run) for run in chosen.runs]
    own = {one.batch_size for one in every}
    together = {one.batch_size * one.workers for one in every}
    if len(together) == 1:
        return f"Strong scaling: every point has the global batch of {min(together)}, and the same training samples."
    if len(own) == 1:
        return f"Weak scaling: every worker has the batch of {min(own)}; the training samples are the same."
    return "Neither strong nor weak scaling: both the batch of a worker and the global batch vary."


def warnings(chosen: Chosen) -> list[str]:
    """What a reader must know before the figures, one line each."""
    found = []
    here = [run for run in chosen.runs if run.noise is None or run.noise.machine != CLIENT]
    if here:
        cores = min(int(run.platform.get("cores") or 0) for run in here) or "an unknown number of"
        found.append(
            f"All workers shared one machine of {cores} cores with the rest of the stack: more workers bring no more "
            "cores, so this is not how a cluster scales."
        )
    enough = statistics.fewest_repeats()
    if any(len(each) < enough for each in grouped(chosen.runs, lambda run: run.experiment_key).values()):
        found.append(f"No interval is given of fewer than {enough} repeats, which 95 % need.")
    return [f"warning: {line}" for line in found]


def table(found: Curves) -> pd.DataFrame:
    """One row a curve and number of workers; see `dlobd.report.text.median`."""
    rows = [
        {
            "": label,
            "workers": one.workers,
            "runs": one.runs,
            "wall, s": median(one.walls_s),
            "speed-up": _ratio(one, one.speed_ups),
            "efficiency": _ratio(one, one.efficiencies(one.speed_ups)),
            "samples/s": median(one.rates),
            "of training": _ratio(one, one.trainings),
            "efficiency of training": _ratio(one, one.efficiencies(one.trainings)),
        }
        for label, curve in found.items()
        for one in curve
    ]
    return pd.DataFrame(rows)


def report(chosen: Chosen) -> tuple[Iterable[str], Figure]:
    """Tables and picture. See `dlobd.report.script`."""
    found = curves(chosen)
    bars = {f"{label}, {one.workers}": one.layers for label, curve in found.items() for one in curve}
    pieces = (
        kind(chosen),
        *warnings(chosen),
        f"\nMedians of runs, and of ratios to the fewest workers within repeats; {MEDIANS}",
        table(found).to_string(index=False),
        "\nLayers, mean seconds of the wall, by workers",
        layer_bars.table(bars, "wall").to_string(float_format="%.3f", na_rep="-"),
    )
    figure = Figure(figsize=(13, 4.6 + 0.2 * len(bars)), layout="constrained")
    left, right = figure.subplots(1, 2)
    _lines(left, found)
    layer_bars.draw(right, bars, "seconds of the wall, mean")
    right.set_title("Layers by workers", loc="left")
    right.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
    figure.suptitle(kind(chosen), fontsize="medium")
    return pieces, figure


def _lines(axes: Axes, found: Curves) -> None:
    """Speed-up over workers, of the wall drawn through and of the training dashed, and the line of efficiency 1."""
    for number, (label, curve) in enumerate(found.items()):
        for name, style, ratios in (
            ("wall", "-", {one.workers: one.speed_ups for one in curve}),
            ("training", "--", {one.workers: one.trainings for one in curve}),
        ):
            colour = pictures.LINE_COLOURS[number % len(pictures.LINE_COLOURS)]
            known = {workers: middle for workers, each in ratios.items() if (middle := statistics.median(each))}
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


def _ratio(of: Scaled, values: Values) -> str:
    return "1" if of.workers == of.fewest else median(values)
