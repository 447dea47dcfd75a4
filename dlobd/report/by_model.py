"""The layer breakdown by model: where the wall of each model's job went, in seconds and in percent."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.figure import Figure

from dlobd.record.run import Run
from dlobd.report import layer_bars
from dlobd.report.chosen import Chosen, configuration, grouped, setting
from dlobd.report.layer_bars import Seconds


def bars(chosen: Chosen) -> dict[str, Seconds]:
    """Mean seconds by model; of a model that was run by several settings a bar each, which its label names."""
    alike: dict[str, list[Run]] = {}
    for model, runs in grouped(chosen.runs, lambda run: configuration(run).model).items():
        for run in runs:
            details = chosen.label(run, "model") if chosen.axes else setting(run, runs)
            label = f"{model} {details}".strip()
            alike.setdefault(label, []).append(run)
    return {label: layer_bars.means(alike[label]) for label in sorted(alike)}


def report(chosen: Chosen) -> tuple[Iterable[str], Figure]:
    """Both tables and the picture. See `dlobd.report.script`."""
    seconds = bars(chosen)
    percent = {label: layer_bars.percents(bar) for label, bar in seconds.items()}
    pieces = (
        f"{len(chosen.runs)} run(s), mean seconds",
        layer_bars.table(seconds, "wall").to_string(float_format="%.3f", na_rep="-"),
        "\nPercent of the wall",
        layer_bars.table(percent, "wall").to_string(float_format="%.1f", na_rep="-"),
    )
    figure = Figure(figsize=(13, 1.8 + 0.45 * len(seconds)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    layer_bars.draw(left, seconds, "seconds of the wall, mean")
    layer_bars.draw(right, percent, "percent of the wall")
    right.invert_yaxis()  # the axis is shared, and was inverted twice
    left.set_title("Where the wall time went, by model", loc="left")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), fontsize="small", frameon=False)
    return pieces, figure
