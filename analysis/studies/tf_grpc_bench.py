"""Published figures of TF-gRPC-Bench next to results of `dlobd micro`, with the differing conditions.

    dlobd micro latency bandwidth --payload uniform -o uniform.json      (and random, skew)
    dlobd micro ps --payload uniform --servers 2 --workers 3 -o ps.json
    python analysis tf_grpc_bench uniform.json ... ps.json

The published values are read by eye off the figures of arXiv 1804.01138, with an error of about 3 %. They are means of
five runs without spread. Values of different machines do not compare channels; the order of the schemes may.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.studies.pictures import LINES
from analysis.studies.script import Shown
from dlobd.errors import UsageError
from dlobd.micro import estimates, results
from dlobd.micro.estimates import Row
from dlobd.micro.payload import SCHEMES
from dlobd.micro.table import interval

NETWORKS = ("Ethernet", "IPoIB", "RDMA")


@dataclass(frozen=True, slots=True)
class Published:
    """Bars of a figure: values by scheme and network.

    scale: factor from the metric of `dlobd micro` to the unit of the figure.
    """

    figure: int
    benchmark: str
    where: str
    unit: str
    scale: float
    values: dict[str, tuple[float, float, float]]


A, B = "cluster A, 40 Gbit/s Ethernet, EDR", "cluster B, 10 Gbit/s Ethernet, FDR"

PUBLISHED = (
    Published(
        8,
        "latency",
        A,
        "ms",
        1e-3,
        {"uniform": (2.02, 1.97, 0.80), "random": (1.50, 1.43, 0.62), "skew": (2.95, 2.72, 1.20)},
    ),
    Published(
        9,
        "latency",
        B,
        "ms",
        1e-3,
        {"uniform": (3.9, 2.85, 1.03), "random": (4.8, 3.8, 0.53), "skew": (5.75, 4.15, 1.27)},
    ),
    Published(
        11,
        "bandwidth",
        A,
        "MB/s",
        1.0,
        {"uniform": (2400, 2600, 5170), "random": (2400, 2250, 5220), "skew": (2380, 2460, 5270)},
    ),
    Published(
        12,
        "bandwidth",
        B,
        "MB/s",
        1.0,
        {"uniform": (1120, 1490, 4370), "random": (1120, 1550, 4520), "skew": (1120, 1490, 4900)},
    ),
    Published(
        13,
        "ps",
        A,
        "RPC/s",
        1.0,
        {"uniform": (660, 805, 2760), "random": (810, 960, 2890), "skew": (510, 530, 2140)},
    ),
    Published(
        14,
        "ps",
        B,
        "RPC/s",
        1.0,
        {"uniform": (450, 760, 2730), "random": (620, 1160, 3650), "skew": (330, 640, 1680)},
    ),
)

CONDITIONS = (
    "Conditions that differ: the paper has gRPC 1.5.0 in C++ between two hosts of a cluster, without serialization, "
    "10 buffers, 2 s of warm-up and 10 s per point. Its RDMA is a gRPC of its authors. Payloads of its scheme random "
    "differ between its figures. The results have {machine}, {place}; {launches} launches."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument for files of results."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="results of dlobd micro -o FILE.json")


def report(asked: Namespace) -> Shown:
    """Return a table of each figure, and the bars of the results.

    Raises:
        BundleError: a file has no results.
        UsageError: the results have no payload of the paper.
    """
    found = [results.read(path) for path in asked.files]
    rows = [row for one in found for row in estimates.rows(one) if row.point.payload.name in SCHEMES and row.figure]
    rows = [row for row in rows if not row.point.payload.serialized]
    if not rows:
        raise UsageError(
            "The results have no payload of TF-gRPC-Bench.", "dlobd micro latency --payload uniform -o FILE"
        )
    texts = [table(one, rows) for one in PUBLISHED]
    first = found[0]
    launches = min(row.launches for row in rows)
    conditions = CONDITIONS.format(machine=first.machine, place=f"place {first.place}", launches=launches)
    return ([*filter(None, texts), conditions], _picture(rows))


def table(published: Published, rows: Sequence[Row]) -> str:
    """Return the text of a figure: published bars, then one column per route; empty without results for it."""
    own = [row for row in rows if row.point.benchmark == published.benchmark]
    if not own:
        return ""
    lines = []
    for scheme, bars in published.values.items():
        cells: dict[str, str] = {"scheme": scheme}
        cells |= {f"paper, {name}": f"{bar:,.4g}" for name, bar in zip(NETWORKS, bars, strict=True)}
        for row in own:
            figure = row.figure and row.figure.times(published.scale)
            if row.point.payload.name == scheme and figure:
                cells[row.route.label] = f"{figure.value:,.4g} [{interval(figure, row.launches)}]"
        lines.append(cells)
    head = f"Figure {published.figure}, {published.benchmark}, {published.unit}; paper: {published.where}"
    return f"{head}\n{pd.DataFrame(lines).fillna('-').to_string(index=False)}\n"


def _picture(rows: Sequence[Row]) -> Figure:
    names = [name for name in ("latency", "bandwidth", "ps") if any(row.point.benchmark == name for row in rows)]
    labels = list(dict.fromkeys(row.route.label for row in rows))
    figure = Figure(figsize=(4 * len(names), 4), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for place, (label, (_, _, shade)) in enumerate(zip(labels, LINES, strict=False)):
            own = {
                row.point.payload.name: row.figure
                for row in rows
                if (row.route.label, row.point.benchmark) == (label, name)
            }
            at = [place / (len(labels) + 1) + number for number, scheme in enumerate(SCHEMES) if scheme in own]
            bars = [one for scheme in SCHEMES if (one := own.get(scheme))]
            reach = [[one.value - (one.low or one.value), (one.high or one.value) - one.value] for one in bars]
            axes.bar(at, [one.value for one in bars], 1 / (len(labels) + 1), color=shade, label=label)
            axes.errorbar(
                at, [one.value for one in bars], yerr=np.array(reach).T, fmt="none", ecolor="black", capsize=2
            )
        axes.set_xticks(range(len(SCHEMES)), SCHEMES)
        axes.set_title(f"{name}, {'us one way' if name == 'latency' else 'MB/s' if name == 'bandwidth' else 'calls/s'}")
    figure.axes[0].legend(fontsize="small", frameon=False)
    return figure
