"""Cost of an exchange by parts, for channels, libraries, exchanges and numbers of ranks, and the used transport.

The time of an exchange is the mean over the exchanges of the slowest rank, then the median over runs. TensorFlow's own
exchange inside a step has no measured time. A channel without a run is listed with the reason.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.studies import script
from analysis.studies.pictures import EDGE
from analysis.studies.runs import experiment
from analysis.studies.script import Shown
from dlobd.axes import CHANNELS
from dlobd.compare.figures import throughput
from dlobd.compare.runset import RunSet
from dlobd.experiment import channels
from dlobd.network import interfaces
from dlobd.network.devices import devices
from dlobd.record.run import Run
from dlobd.report.text import MEDIANS, median

STYLES = {
    "pack": ("#0072B2", ""),
    "wait_for_peers": ("#999999", "//"),
    "wire": ("#D55E00", ".."),
    "unpack": ("#009E73", "xx"),
}
"""Colour and hatch of each part."""


@dataclass(frozen=True, slots=True)
class Point:
    """Runs of one model, exchange, channel, library and number of ranks.

    exchange_ms, parts_ms: times of one exchange; None inside a step, or for parts that are not separated.
    rates: samples per second of each run.
    used: transports and interfaces that carried the bytes.
    """

    label: str
    runs: int
    rates: tuple[float | None, ...]
    exchange_ms: float | None
    parts_ms: dict[str, float | None]
    used: tuple[str, ...]


def label(run: Run) -> str:
    """Format the label of a run's point."""
    chosen = experiment(run)
    library = channels.library(chosen)
    return f"{chosen.model}, {chosen.workers} ranks: {chosen.exchange} over {chosen.channel} ({library})"


def points(runs: RunSet) -> list[Point]:
    """Group the runs to points by label, without runs of a single rank, which have no exchange."""
    groups = runs.grouped(lambda run: label(run) if experiment(run).workers > 1 else "")
    return [_point(name, group.runs) for name, group in sorted(groups.items()) if name]


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
    """Return the time of an exchange; None if a run lacks it."""
    longest = []
    for run in runs:
        values = [getattr(use, f"{part}_ns") for use in run.exchange if use.calls]
        if not values or None in values:
            return None
        longest.append(max(ns / use.calls / 1e6 for ns, use in zip(values, run.exchange, strict=True)))
    return statistics.median(longest) if longest else None


def unavailable(runs: RunSet) -> Iterator[tuple[str, str]]:
    """List channels without a run as (channel, reason)."""
    have = {experiment(run).channel.transport for run in runs.runs}
    infiniband = [one for one in interfaces.interfaces() if one.type == interfaces.INFINIBAND]
    lacks = {"rdma": [] if devices() else ["RDMA device"], "ipoib": [] if infiniband else ["InfiniBand interface"]}
    for name in CHANNELS.names():
        if name not in have:
            lack = lacks.get(name)
            yield name, f"this machine has no {lack[0]}" if lack else "no given run uses it"


def report(asked: Namespace) -> Shown:
    """Format the table and draw the picture."""
    runs = script.usable(asked.runs)
    found = points(runs)
    lines = [f"unavailable: channel {name}: {why}" for name, why in unavailable(runs)]
    if any(point.exchange_ms is None for point in found):
        lines.append("-: inside TensorFlow's compiled step, not measured")
    return (
        f"Milliseconds of one exchange, medians of runs; {MEDIANS}.",
        table(found).to_string(index=False),
        *lines,
    ), _picture(found)


def table(found: Sequence[Point]) -> pd.DataFrame:
    """Build one row per point."""
    rows = []
    for point in found:
        cells = ["-" if ms is None else f"{ms:.3g}" for ms in (point.exchange_ms, *point.parts_ms.values())]
        rows.append((point.label, point.runs, median(point.rates), *cells, ", ".join(point.used)))
    parts = [part.replace("_", " ") for part in STYLES]
    return pd.DataFrame(rows, columns=["", "runs", "samples/s", "exchange", *parts, "used"])


def _picture(found: Sequence[Point]) -> Figure | None:
    shown = [point for point in found if point.exchange_ms is not None]
    if not shown:
        return None
    figure = Figure(figsize=(10, 1.5 + 0.45 * len(shown)), layout="constrained")
    axes: Axes = figure.subplots()
    left = [0.0] * len(shown)
    for part, (shade, hatch) in STYLES.items():
        lengths = [point.parts_ms[part] or 0.0 for point in shown]
        looks = {"color": shade, "hatch": hatch, **EDGE}
        axes.barh([point.label for point in shown], lengths, left=left, label=part.replace("_", " "), **looks)
        left = [start + length for start, length in zip(left, lengths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one exchange")
    figure.legend(loc="outside lower left", ncols=len(STYLES), fontsize="small", frameon=False)
    return figure
