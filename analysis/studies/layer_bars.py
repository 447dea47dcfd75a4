"""Table and stacked bars of layers for several groups of runs."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.studies import pictures
from dlobd.compare.figures import PARTS, layer_s
from dlobd.layers import title
from dlobd.record.run import Run

LABEL = 32
"""Longest line of a bar's label, in characters."""

Seconds = dict[str, float | None]
"""Mean seconds by layer, or unattributed; None for an unmeasured layer."""


def means(runs: Sequence[Run]) -> Seconds:
    """Return the mean of each layer over the runs that measured the layer. If all runs measured all layers, the means
    sum to the mean wall time."""
    known = {name: [seconds for run in runs if (seconds := layer_s(run, name)) is not None] for name in PARTS}
    return {name: statistics.fmean(values) if values else None for name, values in known.items()}


def percents(seconds: Seconds) -> Seconds:
    """Convert seconds to percent of their sum."""
    wall_s = sum(value or 0.0 for value in seconds.values())
    return {name: None if value is None else 100 * value / wall_s for name, value in seconds.items()}


def table(bars: Mapping[str, Seconds], total: str) -> pd.DataFrame:
    """Build one row per bar: all layers present in any bar, and their sum in column `total`."""
    shown = [name for name in PARTS if any(bar[name] for bar in bars.values())]
    rows = {
        label: {**{title(name): bar[name] for name in shown}, total: sum(value or 0.0 for value in bar.values())}
        for label, bar in bars.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*map(title, shown), total]).astype(float)


def draw(axes: Axes, bars: Mapping[str, Seconds], unit: str) -> None:
    """Draw one horizontal bar per label, from the top, with the common colours and hatches."""
    left = dict.fromkeys(bars, 0.0)
    for name in PARTS:
        lengths = {label: bar[name] or 0.0 for label, bar in bars.items()}
        if any(lengths.values()):
            labels = [textwrap.fill(label, LABEL) for label in bars]
            axes.barh(labels, [*lengths.values()], left=[*left.values()], label=title(name), **pictures.bar(name))
            left = {label: left[label] + lengths[label] for label in bars}
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
