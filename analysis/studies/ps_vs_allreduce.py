"""Parameter servers against all-reduces: time of one gradient exchange over the number of ranks.

Hosts are network namespaces of this machine, and each rank has its own link of a given rate. All ranks share the cores,
so times also grow if there are more ranks than cores. The model is cifar10-quick. Namespaces need root and iproute2.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.studies.pictures import LINES
from analysis.studies.script import Shown
from dlobd.compare import median as medians
from dlobd.compare.median import Spread
from dlobd.errors import SetupError
from dlobd.micro import estimates, results, study
from dlobd.micro.hosts import INTERFACE, hosts
from dlobd.micro.launch import Plan
from dlobd.micro.payload import Payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.request import gradient_shapes

MODEL = "cifar10-quick"
CALLS = 10

Times = dict[str, dict[int, list[float]]]
"""Seconds of each repeat, by contestant and number of ranks."""


def contestants(count: int) -> Mapping[str, tuple[str, str, int]]:
    """Return exchange, library and servers by label, for a number of ranks."""
    return {
        "ring": ("ring", "sockets", 1),
        "halving-doubling": ("halving-doubling", "sockets", 1),
        "mpi": ("mpi", "mpi", 1),
        "ps, 1 server": ("ps", "sockets", 1),
        "ps, 1 server per rank": ("ps", "sockets", count),
    }


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the measurement."""
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[2, 4, 8], metavar="N", help="numbers of ranks, from 2 to 16"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument(
        "--rate", default="1gbit", help="rate of each host's link, in the format of tc; '' for unlimited"
    )


def report(asked: Namespace) -> Shown:
    """Measure all contestants sequentially in each repeat.

    Raises:
        SetupError: root for network namespaces is missing, or a rank failed.
    """
    shapes = gradient_shapes(MODEL)
    size_bytes = 4 * sum(int(np.prod(shape)) for shape in shapes)
    point = Point("exchange", Payload(MODEL, (size_bytes,)), calls=CALLS, shapes=shapes, whole=True)
    found: Times = {}
    for count in asked.ranks:
        labels = {
            label: Route(f"tcp@{INTERFACE}", library, exchange, servers)
            for label, (exchange, library, servers) in contestants(count).items()
        }
        with hosts(count, asked.rate) as made:
            plans = [(Plan(route, (point,), servers=0), made) for route in labels.values()]
            done = study.run(results.empty("", "namespaces", 1), plans, asked.repeats, lambda _: None)
        for launch in done.launches:
            if launch.failed:
                raise SetupError(f"{launch.route.label}: {launch.failed}.", "dlobd doctor")
        for label, route in labels.items():
            found.setdefault(label, {})[count] = [ms / 1e3 for ms in estimates.values(done, route, point)]
    return shown(found, size_bytes, asked.rate)


def shown(found: Times, size_bytes: int, rate: str) -> Shown:
    """Return table and picture."""
    link = f"links of {rate}" if rate else "links as fast as this machine"
    head = f"Milliseconds of one exchange of {size_bytes:,} bytes ({MODEL}), {link}: median (lowest-highest)"
    return (head, table(found).to_string(index=False)), _picture(found, head)


def table(found: Times) -> pd.DataFrame:
    """Build one row per contestant and one column per number of ranks."""
    rows = [
        {"": label, **{f"{count} ranks": _cell(_spread(times)) for count, times in by_ranks.items()}}
        for label, by_ranks in found.items()
    ]
    return pd.DataFrame(rows)


def _spread(seconds: Sequence[float]) -> Spread:
    return medians.spread([1e3 * each for each in seconds])


def _cell(ms: Spread) -> str:
    return f"{ms.median:.3g} ({ms.low:.3g}-{ms.high:.3g})" if ms.median is not None else "-"


def _picture(found: Times, head: str) -> Figure:
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for (label, by_ranks), (style, marker, shade) in zip(found.items(), LINES, strict=False):
        ms = np.array([(one.low, one.median, one.high) for one in map(_spread, by_ranks.values())], float).T
        axes.plot([*by_ranks], ms[1], linestyle=style, marker=marker, color=shade, label=label)
        axes.errorbar([*by_ranks], ms[1], yerr=np.abs(ms[[0, 2]] - ms[1]), fmt="none", ecolor=shade, capsize=3)
    axes.set_xticks(sorted({count for by_ranks in found.values() for count in by_ranks}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks, each on its own host")
    axes.set_ylabel("milliseconds")
    axes.set_title(head.partition(":")[0], loc="left", fontsize="medium")
    axes.legend(fontsize="small", frameon=False)
    axes.grid(visible=True, linewidth=0.3)
    return figure
