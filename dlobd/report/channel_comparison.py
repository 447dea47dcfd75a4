"""The same training over several channels, libraries, exchanges and numbers of ranks: what an exchange costs, by parts,
and by what its bytes really went.

Times are of one exchange: all of a rank's, divided by their number, of the rank that took longest; then the median over
runs. What TensorFlow does inside of a step has no number of its own. A channel that no run has is listed with what this
machine lacks for it: absence is never a small number.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlobd.axes import CHANNELS
from dlobd.experiment import channels
from dlobd.network import interfaces
from dlobd.network.channels.spec import ChannelSpec
from dlobd.network.devices import devices
from dlobd.record.run import Run
from dlobd.report.chosen import Chosen, configuration, grouped
from dlobd.report.script import Shown
from dlobd.report.summary import throughput
from dlobd.report.text import MEDIANS, median

STYLES = {
    "pack": ("#0072B2", ""),
    "wait_for_peers": ("#999999", "//"),
    "wire": ("#D55E00", ".."),
    "unpack": ("#009E73", "xx"),
}
"""Colour and hatch of each part."""

TESTS_ONLY = ("inproc",)
"""Channels that no job can have."""


@dataclass(frozen=True, slots=True)
class Point:
    """Runs of one model, exchange, channel, library and number of ranks.

    exchange_ms, parts_ms: of one exchange; None where it is inside of the step, or its parts are not told apart.
    rates: samples per second of each run.
    used: by what the bytes went, and over what, of every run.
    """

    label: str
    runs: int
    rates: tuple[float | None, ...]
    exchange_ms: float | None
    parts_ms: dict[str, float | None]
    used: tuple[str, ...]


def label(run: Run) -> str:
    """What makes a point."""
    chosen = configuration(run)
    library = channels.library(chosen.exchange, chosen.channel, chosen.channel_library)
    return f"{chosen.model}, {chosen.workers} ranks: {chosen.exchange} over {chosen.channel} ({library})"


def points(chosen: Chosen) -> list[Point]:
    """By label; one rank alone exchanges nothing, and is none."""
    runs = [run for run in chosen.runs if configuration(run).workers > 1]
    return [_point(name, own) for name, own in sorted(grouped(runs, label).items())]


def _point(name: str, runs: Sequence[Run]) -> Point:
    used = {
        f"{plane.kind}{f' ({where})' if (where := plane.device or plane.interface) else ''}{' Soft-RoCE' * plane.soft}"
        for run in runs
        for plane in run.transport or ()
        if plane.plane == "exchange"
    }
    return Point(
        name,
        len(runs),
        tuple(map(throughput, runs)),
        _ms(runs, "exchange"),
        {part: _ms(runs, part) for part in STYLES},
        tuple(sorted(used)) or ("unknown",),
    )


def _ms(runs: Sequence[Run], part: str) -> float | None:
    """Of one exchange; None unless every run has it."""
    longest = []
    for run in runs:
        values = [getattr(use, f"{part}_ns") for use in run.exchange if use.calls]
        if not values or None in values:
            return None
        longest.append(max(ns / use.calls / 1e6 for ns, use in zip(values, run.exchange, strict=True)))
    return statistics.median(longest) if longest else None


def unavailable(chosen: Chosen) -> Iterator[tuple[str, str]]:
    """(channel, what this machine lacks for it) of those that no run has."""
    have = {ChannelSpec.parse(configuration(run).channel).transport for run in chosen.runs}
    for name in CHANNELS.names():
        if name not in have and name not in TESTS_ONLY:
            yield name, _lack(name) or "no run of it was named"


def _lack(channel: str) -> str:
    if channel == "rdma" and not devices():
        return "this machine has no RDMA device"
    if channel == "ipoib" and not any(one.type == interfaces.INFINIBAND for one in interfaces.interfaces()):
        return "this machine has no InfiniBand interface"
    return ""


def report(chosen: Chosen) -> Shown:
    """Table and picture."""
    found = points(chosen)
    lines = [f"unavailable: channel {name}: {why}" for name, why in unavailable(chosen)]
    if any(point.exchange_ms is None for point in found):
        lines.append("-: inside of TensorFlow's compiled step, without a number of its own")
    return (
        f"Milliseconds of one exchange, medians of runs; {MEDIANS}.",
        table(found).to_string(index=False),
        *lines,
    ), _picture(found)


def table(found: Sequence[Point]) -> pd.DataFrame:
    """One row a point."""
    return pd.DataFrame(
        [
            {
                "": point.label,
                "runs": point.runs,
                "samples/s": median(point.rates),
                "exchange": _cell(point.exchange_ms),
                **{part.replace("_", " "): _cell(ms) for part, ms in point.parts_ms.items()},
                "used": ", ".join(point.used),
            }
            for point in found
        ]
    )


def _cell(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3g}"


def _picture(found: Sequence[Point]) -> Figure | None:
    """Bars of the parts; None where there is nothing to draw."""
    shown = [point for point in found if point.exchange_ms is not None]
    if not shown:
        return None
    figure = Figure(figsize=(10, 1.5 + 0.45 * len(shown)), layout="constrained")
    axes: Axes = figure.subplots()
    left = [0.0] * len(shown)
    for part, (shade, hatch) in STYLES.items():
        lengths = [point.parts_ms[part] or 0.0 for point in shown]
        names = [point.label for point in shown]
        axes.barh(
            names, lengths, left=left, label=part.replace("_", " "), color=shade, hatch=hatch, edgecolor="black",
            linewidth=0.4,
        )  # fmt: skip
        left = [start + length for start, length in zip(left, lengths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one exchange")
    axes.legend(fontsize="small", frameon=False)
    return figure
