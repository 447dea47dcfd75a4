"""The studies of AR-gRPC (HiPC'18) over the channels of dlobd; measures by itself, and needs root.

    eager threshold   UCX_RNDV_THRESH: size from which UCX asks the receiver first, then transfers without a copy
    coalescing        a message of small buffers, gathered by the library, or copied into one buffer before
    chunk size        bandwidth of messages of one chunk
    pipelining        bandwidth by number of messages in flight
    fully connected   calls per second of two workers to two servers, by size of the message

Hosts are network namespaces of this machine. The paper tunes threshold and chunk size for its networks, and gives no
values. Fully connected, its gRPC over RDMA has 2.68 times the throughput of gRPC over IPoIB at 4 MB, and 60 % less
latency (its slides). A recommendation is the setting with the best figure. Settings whose intervals contain it are
equally good.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.studies.pictures import LINES
from analysis.studies.script import Shown
from dlobd.compare.median import Estimate, median
from dlobd.errors import SetupError
from dlobd.micro import estimates, results, study
from dlobd.micro.hosts import INTERFACE, Host, hosts
from dlobd.micro.launch import Plan
from dlobd.micro.payload import Payload, name_of, payload, size_bytes
from dlobd.micro.plan import Point, Route
from dlobd.network.channels.base import environment_variables

THRESHOLDS = ("1K", "8K", "64K", "512K", "inf")
MESSAGES = ("4K", "64K", "256K", "1M")
BUFFERS = (1, 4, 16, 64, 256)
BUFFER_BYTES = 256
CHUNKS = ("16K", "64K", "256K", "1M", "4M")
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
PIPELINED = "64K"
SERVERS, WORKERS = 2, 2
CONNECTED = ("8", "64K", "4M")
LIBRARIES = ("sockets", "grpc", "ucx")


@dataclass(frozen=True, slots=True)
class Curve:
    """Figures of one setting of a study, by size or depth."""

    label: str
    figures: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class Study:
    """Study with its unit and curves; `less`: True if less is better."""

    title: str
    unit: str
    less: bool
    curves: list[Curve]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the measurement."""
    parser.add_argument("--launches", type=int, default=5, metavar="N")
    parser.add_argument("--time", type=float, default=0.3, metavar="S", help="recorded time of a point")
    parser.add_argument("--rate", default="", help="rate of each host's link, in the format of tc")


def report(asked: Namespace) -> Shown:
    """Measure all studies.

    Raises:
        SetupError: root for network namespaces is missing, or a launch failed.
    """
    with hosts(2, asked.rate) as made:
        done = [one(asked, made) for one in (_eager, _coalescing, _chunks, _depths)]
    with hosts(SERVERS + WORKERS, asked.rate) as made:
        done.append(_connected(asked, made))
    return ([text(one) for one in done], _picture(done))


def text(found: Study) -> str:
    """Return the table of a study, and its recommendations."""
    rows = [{"": curve.label, **{name: str(one) for name, one in curve.figures.items()}} for curve in found.curves]
    lines = [f"{found.title}, {found.unit}", pd.DataFrame(rows).fillna("-").to_string(index=False)]
    if len(found.curves) > 1:
        for name in dict.fromkeys(name for curve in found.curves for name in curve.figures):
            own = {curve.label: curve.figures[name] for curve in found.curves if name in curve.figures}
            lines.append(f"{name}: {_best(own, found.less)}")
    else:
        lines.append(f"recommended: {_best(found.curves[0].figures, found.less)}")
    return "\n".join(lines) + "\n"


def _best(figures: dict[str, Estimate], less: bool) -> str:
    best = (min if less else max)(figures, key=lambda name: figures[name].value)
    value = figures[best].value
    equal = [
        name
        for name, one in figures.items()
        if name != best and one.low is not None and one.high is not None and one.low <= value <= one.high
    ]
    return f"best {best}" + (f"; not shown to differ: {', '.join(equal)}" if equal else "")


def _measured(
    asked: Namespace, made: Sequence[Host], library: str, points: dict[str, Point], servers: int = 1
) -> dict[str, Estimate]:
    """Return the figure of each point, over the launches."""
    route = Route(f"tcp@{INTERFACE}", library)
    timed = tuple(replace(point, seconds=asked.time) for point in points.values())
    plan = Plan(route, timed, servers, pins=len(made) == 2)
    done = study.run(results.empty("", "namespaces", 2), [(plan, made)], asked.launches, lambda _: None)
    for launch in done.launches:
        if launch.failed:
            raise SetupError(f"{route.label}: {launch.failed}.", "dlobd doctor")
    every = [median(estimates.values(done, route, point)) for point in plan.points]
    return {name: one for name, one in zip(points, every, strict=True) if one}


def _eager(asked: Namespace, made: Sequence[Host]) -> Study:
    points = {name_of(size_bytes(size)): Point("latency", payload(size)) for size in MESSAGES}
    curves = []
    for threshold in THRESHOLDS:
        with environment_variables({"UCX_RNDV_THRESH": threshold.lower()}):
            curves.append(Curve(f"rendezvous from {threshold}", _measured(asked, made, "ucx", points)))
    return Study("Eager threshold of library ucx, latency", "us one way", True, curves)


def _coalescing(asked: Namespace, made: Sequence[Host]) -> Study:
    def points(gathered: bool) -> dict[str, Point]:
        sizes = {count: (BUFFER_BYTES,) * count if gathered else (BUFFER_BYTES * count,) for count in BUFFERS}
        return {f"{count} buffers": Point("latency", Payload(str(count), own)) for count, own in sizes.items()}

    curves = [
        Curve(
            f"{library}, {'gathered' if gathered else 'one buffer'}", _measured(asked, made, library, points(gathered))
        )
        for library in LIBRARIES
        for gathered in (True, False)
    ]
    return Study(f"Coalescing of buffers of {BUFFER_BYTES} B, latency without the copy", "us one way", True, curves)


def _chunks(asked: Namespace, made: Sequence[Host]) -> Study:
    points = {name_of(size_bytes(size)): Point("bandwidth", payload(size)) for size in CHUNKS}
    return Study(
        "Chunk size of library ucx, bandwidth", "MB/s", False, [Curve("ucx", _measured(asked, made, "ucx", points))]
    )


def _depths(asked: Namespace, made: Sequence[Host]) -> Study:
    points = {f"{depth}": Point("bandwidth", payload(PIPELINED), window=depth) for depth in WINDOWS}
    own = _measured(asked, made, "ucx", points)
    return Study(f"Messages of {PIPELINED} in flight, library ucx, bandwidth", "MB/s", False, [Curve("ucx", own)])


def _connected(asked: Namespace, made: Sequence[Host]) -> Study:
    points = {name_of(size_bytes(size)): Point("ps", payload(size)) for size in CONNECTED}
    curves = [Curve(library, _measured(asked, made, library, points, SERVERS)) for library in LIBRARIES]
    return Study(f"Fully connected: {SERVERS} servers, {WORKERS} workers", "calls/s", False, curves)


def _picture(done: Sequence[Study]) -> Figure:
    figure = Figure(figsize=(11, 12), layout="constrained")
    *rest, empty = np.ravel(figure.subplots(3, 2))
    empty.set_axis_off()
    for axes, one in zip(rest, done, strict=True):
        for curve, (style, marker, shade) in zip(one.curves, LINES, strict=False):
            middle = [found.value for found in curve.figures.values()]
            axes.plot(list(curve.figures), middle, linestyle=style, marker=marker, color=shade, label=curve.label)
        if one.unit == "calls/s":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(one.unit)
        axes.set_title(one.title, loc="left", fontsize="small")
        axes.legend(fontsize="x-small", frameon=False)
        axes.grid(visible=True, linewidth=0.3)
    return figure
