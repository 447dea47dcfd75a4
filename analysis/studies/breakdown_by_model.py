"""Layers of the wall time by model, in seconds and percent, as means over equal runs."""

from __future__ import annotations

from argparse import Namespace

from matplotlib.figure import Figure

from analysis.studies import layer_bars, script
from analysis.studies.layer_bars import Seconds
from analysis.studies.runs import experiment, settings_name
from analysis.studies.script import Shown
from dlobd.compare.runset import RunSet
from dlobd.record.run import Run


def bars(runs: RunSet) -> dict[str, Seconds]:
    """Return mean seconds by model; a model with several settings gets one bar per setting."""
    alike: dict[str, list[Run]] = {}
    for model, own in runs.grouped(lambda run: experiment(run).model).items():
        for run in own.runs:
            alike.setdefault(f"{model} {settings_name(own, run, 'model')}".strip(), []).append(run)
    return {label: layer_bars.means(alike[label]) for label in sorted(alike)}


def report(asked: Namespace) -> Shown:
    """Format both tables and draw the picture."""
    runs = script.usable(asked.runs)
    seconds = bars(runs)
    percent = {label: layer_bars.percents(bar) for label, bar in seconds.items()}
    pieces = (
        f"{len(runs.members)} run(s), mean seconds",
        layer_bars.table(seconds, "wall").to_string(float_format="%.3f", na_rep="-"),
        "\nPercent of the wall time",
        layer_bars.table(percent, "wall").to_string(float_format="%.1f", na_rep="-"),
    )
    figure = Figure(figsize=(13, 1.8 + 0.45 * len(seconds)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    layer_bars.draw(left, seconds, "mean seconds of the wall time")
    layer_bars.draw(right, percent, "percent of the wall time")
    right.invert_yaxis()  # the shared axis was inverted twice, by each plot
    left.set_title("Wall time by model and layer", loc="left")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), fontsize="small", frameon=False)
    return pieces, figure
