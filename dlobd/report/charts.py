"""The pictures of stack overhead and of its amortisation. They show what is given and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlobd.attribution.statistics import Estimate
from dlobd.layers import LAYERS
from dlobd.report.amortisation import GOAL, SHORT, Amortisation, Line
from dlobd.report.blocks import NATIVE
from dlobd.report.pictures import HATCHES, LINE_COLOURS, colour
from dlobd.report.stack_overhead import PUBLISHED_PERCENT, StackOverhead, share

WIDE = 0.05
"""A segment of at least this share of the axis has room for its own seconds."""

GROUP_LAYERS = {"YARN": "yarn", "Spark": "spark"}
"""Layer group of the published figures to the layer whose colour stands for it."""

LINES = tuple(zip(("-", "--", "-.", ":", "-", "--", "-."), "os^DvPX", LINE_COLOURS, strict=True))
"""Style, marker and colour of the lines, one after the other: told apart by each of the three alone or together."""

READABLE = [patheffects.withStroke(linewidth=2.5, foreground="white")]


def stack_overhead(found: StackOverhead) -> Figure:
    """Left: seconds of each point, stacked by layer, with total, interval and ratio to native. Right: the shares of the
    wall in YARN and in Spark, and the published ones."""
    figure = Figure(figsize=(13, 1.8 + 0.62 * len(found.points)), layout="constrained")
    bars, shares = figure.subplots(1, 2, width_ratios=(3, 1))
    _bars(bars, found)
    _shares(shares, found)
    layers = [name for name in HATCHES if any(point.layers.get(name) for point in found.points)]
    handles = [_patch(name, LAYERS[name].title if name in LAYERS else name) for name in layers]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize="small", frameon=False)
    return figure


def _patch(layer: str, label: str) -> Patch:
    return Patch(facecolor=colour(layer), edgecolor="black", linewidth=0.4, hatch=HATCHES[layer], label=label)


def _bars(axes: Axes, found: StackOverhead) -> None:
    widest = max(point.wall.high or point.wall.value for point in found.points)
    room = 1.32 * widest
    for row, point in enumerate(found.points):
        left = 0.0
        for layer, seconds in point.layers.items():
            style = {"color": colour(layer), "edgecolor": "black", "linewidth": 0.4, "hatch": HATCHES[layer]}
            axes.barh(row, seconds, left=left, height=0.62, **style)  # type: ignore[arg-type]
            if seconds >= WIDE * room:
                axes.text(
                    left + seconds / 2, row, f"{seconds:.1f}", ha="center", va="center", fontsize="small",
                    path_effects=READABLE,
                )  # fmt: skip
            left += seconds
        end = left
        if point.wall.low is not None and point.wall.high is not None:
            axes.plot([point.wall.low, point.wall.high], [row, row], color="black", linewidth=1.2, marker="|")
            end = max(left, point.wall.high)
        axes.text(end + 0.01 * room, row, _total(point.wall.value, point.ratio), va="center", fontsize="small")
    axes.set_xlim(0, room)
    axes.set_yticks(range(len(found.points)), [point.label for point in found.points])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of the wall, mean over repeats; the line at the end is the total's 95 % interval")
    axes.set_title("Native against in-stack: the same training, by layer", loc="left")


def _total(wall_s: float, ratio: Estimate | None) -> str:
    return f"{wall_s:.1f} s\n{ratio} x native" if ratio else f"{wall_s:.1f} s"


def _shares(axes: Axes, found: StackOverhead) -> None:
    rows = [point.label for point in found.points]
    height = 0.31
    for place, group in enumerate(PUBLISHED_PERCENT):
        layer = GROUP_LAYERS[group]
        own = [share(point, group) for point in found.points]
        percent = [100 * one.value if one else 0.0 for one in own] + [PUBLISHED_PERCENT[group]]
        at = [row + (place - 0.5) * height for row in range(len(percent))]
        axes.barh(at, percent, height=height, color=colour(layer), edgecolor="black", linewidth=0.4,
                  hatch=HATCHES[layer], label=f"in {group}")  # fmt: skip
        for row, value in zip(at, percent, strict=True):
            upto = "up to " if row > len(rows) - 0.6 else ""
            if value:
                axes.text(value + 1, row, f"{upto}{value:.1f} %", va="center", fontsize="x-small")
    axes.axhline(len(rows) - 0.5, color="black", linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(rows) + 1), [*rows, "DLoBD study\n(definition not\npublished)"])
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    axes.set_xlabel("share of the wall, percent")
    axes.legend(fontsize="x-small", loc="upper right")


def amortisation(found: Amortisation) -> Figure:
    """Stack overhead in percent of native over epochs: the lines with their 95 % intervals, and what was measured.

    Filled marks gave the lines; open ones are longer runs, which did not."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    most = max([50, *(epochs for line in found.lines for epochs in line.walls)])
    epochs = np.geomspace(1, 2 * most, 40)
    for one, (style, marker, shade) in zip(found.against, LINES * len(found.against), strict=False):
        curve = [one.ratio(float(each)) for each in epochs]
        values = [_percent(each.value) for each in curve]
        axes.plot(epochs, values, linestyle=style, color=shade)
        axes.plot([], [], linestyle=style, color=shade, marker=marker, label=one.line.label)  # for the legend
        if curve[0].low is not None:
            low, high = ([_percent(getattr(each, end)) for each in curve] for end in ("low", "high"))
            axes.fill_between(epochs, low, high, color=shade, alpha=0.15, linewidth=0)
        for at, percent in _measured(one.line, one.native):
            face = shade if at <= SHORT else "white"
            axes.plot(at, percent, linestyle="", marker=marker, color=shade, markerfacecolor=face, markersize=8)
    axes.axhline(100 * GOAL, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=10)  # logarithmic above 10 %, and a negative overhead is shown too
    ticks = [1, 2, 3, 8, 20, 50, 100]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    percents = [-50, -20, -10, 0, 5, 10, 20, 50, 100, 200, 500]
    axes.set_yticks(percents, [f"{each} %" for each in percents])
    axes.set_ylim(bottom=min(-2.0, axes.dataLim.ymin))
    axes.set_xlabel("epochs; filled marks gave the lines, open ones are longer runs; bands: 95 % intervals of the mean")
    axes.set_ylabel(f"stack overhead, percent of {NATIVE}")
    axes.set_title("Amortisation: what the stack adds to longer training", loc="left")
    axes.legend(fontsize="small", frameon=False)
    axes.grid(visible=True, linewidth=0.3)
    return figure


def _measured(line: Line, native: Line) -> Sequence[tuple[int, float]]:
    """(epochs, overhead in percent) of the means of the runs that both have, repeat by repeat."""
    points = []
    for epochs in sorted(line.walls.keys() & native.walls.keys()):
        common = line.walls[epochs].keys() & native.walls[epochs].keys()
        if common:
            own, other = (sum(each.walls[epochs][repeat] for repeat in common) for each in (line, native))
            points.append((epochs, _percent(own / other)))
    return points


def _percent(ratio: float) -> float:
    """Overhead in percent, of a ratio to native."""
    return 100 * (ratio - 1)
