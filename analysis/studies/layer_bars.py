"""Layers of several groups of runs: a table, and stacked bars in the colours of the layers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.studies import pictures
from dlobd.compare.figures import PARTS, layer_s
from dlobd.layers import title
from dlobd.record.run import Run

Seconds = dict[str, float | None]
"""Mapping of a layer, or unattributed time, to mean seconds of the wall; None for an unmeasured layer."""


def means(runs: Sequence[Run]) -> Seconds:
    """Return the mean of each layer over the runs that measured it. If all runs did, the means add up to the mean
    wall."""
    known = {name: [seconds for run in runs if (seconds := layer_s(run, name)) is not None] for name in PARTS}
    return {name: statistics.fmean(values) if values else None for name, values in known.items()}


def percents(seconds: Seconds) -> Seconds:
    """Return percent of the sum."""
    wall_s = sum(value or 0.0 for value in seconds.values())
    return {name: None if value is None else 100 * value / wall_s for name, value in seconds.items()}


def table(bars: Mapping[str, Seconds], total: str) -> pd.DataFrame:
    """Return one row per bar: the layers that at least one bar has, and their sum in column `total`."""
    shown = [name for name in PARTS if any(bar[name] for bar in bars.values())]
    rows = {
        label: {**{title(name): bar[name] for name in shown}, total: sum(value or 0.0 for value in bar.values())}
        for label, bar in bars.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*map(title, shown), total]).astype(float)


def draw(axes: Axes, bars: Mapping[str, Seconds], unit: str) -> None:
    """Draw a horizontal bar per label, from the top, in the colours and hatches of all pictures."""
    left = dict.fromkeys(bars, 0.0)
    for name in PARTS:
        lengths = {label: bar[name] or 0.0 for label, bar in bars.items()}
        if any(lengths.values()):
            axes.barh([*bars], [*lengths.values()], left=[*left.values()], label=title(name), **pictures.bar(name))
            left = {label: left[label] + lengths[label] for label in bars}
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
