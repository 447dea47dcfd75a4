"""Layers of several groups of runs beside each other: as a table, and as stacked bars in the layers' colours."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report.pictures import HATCHES, colour
from dlobd.report.summary import layer_s, title

Seconds = dict[str, float | None]
"""Layer, or the unattributed rest, to mean seconds of the wall; None where it was not measured."""


def means(runs: Sequence[Run]) -> Seconds:
    """The mean of each layer over those runs that measured it. With all of them measured, they sum to the mean wall."""
    found: Seconds = {}
    for name in (*LAYERS, UNATTRIBUTED):
        known = [seconds for run in runs if (seconds := layer_s(run, name)) is not None]
        found[name] = statistics.fmean(known) if known else None
    return found


def percents(seconds: Seconds) -> Seconds:
    """The same as percent of their sum."""
    wall_s = sum(value or 0.0 for value in seconds.values())
    return {name: None if value is None else 100 * value / wall_s for name, value in seconds.items()}


def table(bars: Mapping[str, Seconds], total: str) -> pd.DataFrame:
    """One row a bar: the layers that some bar has, and their sum in column `total`."""
    shown = [name for name in (*LAYERS, UNATTRIBUTED) if any(bar[name] for bar in bars.values())]
    rows = {
        label: {**{title(name): bar[name] for name in shown}, total: sum(value or 0.0 for value in bar.values())}
        for label, bar in bars.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*map(title, shown), total]).astype(float)


def draw(axes: Axes, bars: Mapping[str, Seconds], unit: str) -> None:
    """One horizontal bar a label, from the top; colours and hatches are those of every picture."""
    left = dict.fromkeys(bars, 0.0)
    for name in (*LAYERS, UNATTRIBUTED):
        lengths = {label: bar[name] or 0.0 for label, bar in bars.items()}
        if not any(lengths.values()):
            continue
        axes.barh(
            list(bars), list(lengths.values()), left=list(left.values()), label=title(name), edgecolor="black",
            linewidth=0.4, color=colour(name), hatch=HATCHES[name],
        )  # fmt: skip
        left = {label: left[label] + lengths[label] for label in bars}
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
