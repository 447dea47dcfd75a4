"""Wire time of exchanges in real runs, next to its prediction from micro-benchmarks of the channel.

    dlobd micro latency --channel tcp --library sockets -o FAST.json
    dlobd run cifar10-quick --set exchange=ring
    python analysis exchange_prediction --link FAST.json RUN... [--link SLOW.json RUN...]

Each link has a file with latencies and its runs. The launches of the file are others than the runs. The picture has the
attributed time over the predicted time.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.studies.exchange_model import CONFIDENCE, Bounds, Prediction, fitted, from_other_models, predicted
from analysis.studies.pictures import LINES, Style
from analysis.studies.script import Shown
from dlobd.errors import UsageError
from dlobd.micro import results
from dlobd.micro.recorded import exchanges

NOTE = (
    f"Predicted: {CONFIDENCE:.0%} interval over launches. Attributed: median over the exchanges, and the middle "
    f"{CONFIDENCE:.0%} of them. Residual: the extremes of both. From other models: {CONFIDENCE:.0%} interval with the "
    "residuals of all other models."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option for a link: its latencies and its runs."""
    parser.add_argument(
        "--link", action="append", nargs="+", type=Path, required=True, metavar=("FILE", "RUN"),
        help="results of `dlobd micro latency -o FILE`, and bundles of runs over the same link",
    )  # fmt: skip


def report(asked: Namespace) -> Shown:
    """Return table, summary and picture. Raises UsageError: a run has no prediction, or a file has no such route."""
    found = [one for file, *bundles in asked.link for one in _of_link(file, bundles)]
    intervals = [from_other_models(one, found) for one in found]
    errors = [abs(math.expm1(-one.log_ratio)) for one in found]
    pairs = zip(found, intervals, strict=True)
    inside = [ends[0] <= one.attributed[0] <= ends[1] for one, ends in pairs if ends]
    lines = [_table(found, intervals).to_string(index=False), NOTE]
    lines.append(f"Median of |predicted - attributed| / attributed: {np.median(errors):.1%} of {len(found)} runs.")
    if inside:
        lines.append(f"Attributed times inside the interval from other models: {sum(inside)} of {len(inside)}.")
    return lines, _picture(found)


def _of_link(file: Path, bundles: Sequence[Path]) -> list[Prediction]:
    if not bundles:
        raise UsageError(f"--link {file} names no run.", "python analysis exchange_prediction --link FILE RUN...")
    latencies = results.read(file)
    runs = [exchanges(bundle) for bundle in bundles]
    return [predicted(run, file.stem, fitted(latencies, run)) for run in runs]


def _table(found: Sequence[Prediction], intervals: Sequence[tuple[float, float] | None]) -> pd.DataFrame:
    rows = [
        {
            "exchange": one.run.title,
            "link": one.link,
            "bytes": one.run.median.wires[0].bytes,
            "predicted, ms": _ms(one.predicted),
            "attributed, ms": _ms(one.attributed),
            "residual, ms": _ms(one.residual, "+"),
            "from other models, ms": "-" if interval is None else "{:,.4g} to {:,.4g}".format(*_in_ms(interval)),
        }
        for one, interval in zip(found, intervals, strict=True)
    ]
    return pd.DataFrame(rows)


def _in_ms(times_ns: Sequence[float]) -> list[float]:
    return [ns / 1e6 for ns in times_ns]


def _ms(bounds: Bounds, sign: str = "") -> str:
    value, *ends = ("-" if ns is None else f"{ns / 1e6:{sign},.4g}" for ns in bounds)
    return value if "-" in ends else f"{value} ({' to '.join(ends)})"


def _picture(found: Sequence[Prediction]) -> Figure:
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    kinds = list(dict.fromkeys((one.run.exchange, one.link) for one in found))
    for (exchange, link), (_, marker, colour) in zip(kinds, LINES * len(kinds), strict=False):
        some = [one for one in found if (one.run.exchange, one.link) == (exchange, link)]
        middle, low, high = np.array([[ns or one.attributed[0] for ns in one.attributed] for one in some]).T / 1e6
        style: Style = {"fmt": marker, "color": colour, "label": f"{exchange}, {link}", "markersize": 5, "linewidth": 1}
        axes.errorbar([one.predicted[0] / 1e6 for one in some], middle, [middle - low, high - middle], **style)
    times_ms = [one.predicted[0] / 1e6 for one in found] + [one.attributed[0] / 1e6 for one in found]
    ends = [min(times_ms) / 1.5, max(times_ms) * 1.5]
    axes.plot(ends, ends, color="grey", linewidth=0.8, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="predicted, ms", ylabel="attributed, ms")
    axes.legend(fontsize="small", frameon=False)
    return figure
