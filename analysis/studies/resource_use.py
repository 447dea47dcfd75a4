"""Resource use over the time of a run: picture with the layers as background, and means by layer.

Counters are interpolated linearly between two samples. The use of a process before its first and after its last sample
is included in the machine's use only.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dlobd
from analysis.studies.estimates import Floats
from analysis.studies.pictures import HATCHES, Style, colour, layer_legend
from analysis.studies.script import Shown
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Segment
from dlobd.errors import UsageError
from dlobd.measures.frames import RunBundle
from dlobd.record.run import Run

Strip = tuple[str, float, float]
"""Layer, start and duration of a contiguous part of the wall time, in seconds from the start of the window."""

HOST = "host"
"""Role that marks samples of the whole machine."""

ROLES = 7
"""Number of roles drawn separately, in order of CPU time; the remaining roles are drawn as `other`."""

SHADES = ("#FFFFFF", "#999999", "#FFFFFF", "#555555", "#DDDDDD", "#FFFFFF", "#BBBBBB", "#EEEEEE")
PATTERNS = ("", "", "///", "", "...", "xxx", "", "++")
"""Shades of grey and patterns of roles; colours are for layers."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument for the run."""
    parser.add_argument("run", metavar="RUN", help="bundle of a run")


def report(asked: Namespace) -> Shown:
    """Format the means by layer and draw the chart of a run. Raises the errors of `layer_table`."""
    bundle = dlobd.load(asked.run)
    run = bundle.run
    means = layer_table(run).to_string(index=False, float_format="%.3f", na_rep="-")
    pieces = (f"{run.experiment}, run {run.run_id}, {run.status}", "Use of the whole machine, by layer", means)
    return pieces, resource_chart(bundle)


def layer_table(run: Run) -> pd.DataFrame:
    """Build one row per layer: wall time in seconds, and the load of the machine during this time.

    Raises:
        UsageError: the run was not sampled.
    """
    if run.resources is None:
        raise UsageError(f"Run {run.run_id} has no samples of its resources.", "choose a run that was sampled")
    rows = []
    for use in run.resources.layers:
        sizes = {
            "disk read, MB/s": use.disk_read_bytes,
            "disk written, MB/s": use.disk_written_bytes,
            "loopback, MB/s": use.loopback_bytes,
            "network, MB/s": None if use.net_sent_bytes is None else (use.net_received_bytes or 0) + use.net_sent_bytes,
        }
        share = {"CPU busy, %": use.cpu_busy_share, "GPU busy, %": use.gpu_busy_share}
        row: dict[str, str | float | None] = {"layer": use.layer, "seconds": use.ns / 1e9}
        row |= {name: None if value is None else 100 * value for name, value in share.items()}
        # bytes per nanosecond are GB/s
        row |= {
            name: None if n is None or not use.sampled_ns else 1e3 * n / use.sampled_ns for name, n in sizes.items()
        }
        rows.append(row)
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def strips(segments: Iterable[Segment], start_ns: int) -> list[Strip]:
    """Join adjacent segments with equal layers; times are in seconds from `start_ns`."""
    made = []
    for layer, group in groupby(segments, key=lambda segment: segment.layer):
        own = list(group)
        made.append((layer, (own[0].start_ns - start_ns) / 1e9, (own[-1].end_ns - own[0].start_ns) / 1e9))
    return made


def rates(samples: pd.DataFrame, column: str) -> tuple[Floats, Floats]:
    """Return the times of samples in seconds, and the rate of a counter per second between samples."""
    known = samples[samples[column].notna()]
    at_s = known["at_ns"].to_numpy(float) / 1e9
    return at_s, np.diff(known[column].to_numpy(float)) / np.diff(at_s)


def cores_by_role(frame: pd.DataFrame) -> tuple[Floats, dict[str, Floats]]:
    """Return the times of the machine's samples in seconds, and the busy cores between samples by role.

    Roles are in order of CPU time; roles after the first `ROLES` are joined as `other`.
    """
    at_ns = frame[frame["role"] == HOST]["at_ns"].to_numpy(float)
    found: dict[str, Floats] = {}
    processes = frame[(frame["role"] != HOST) & frame["cpu_ns"].notna()]
    for which, own in processes.groupby(["role", "index", "pid"]):
        role = str(which[0])
        spent_ns = np.interp(at_ns, own["at_ns"].to_numpy(float), own["cpu_ns"].to_numpy(float))
        found[role] = found.get(role, np.zeros(1)) + np.diff(spent_ns) / np.diff(at_ns)
    largest = sorted(found, key=lambda role: -float(np.sum(found[role] * np.diff(at_ns))))
    shown = {role: found[role] for role in largest if role != "other"}
    rest = [found[role] for role in [*list(shown)[ROLES:], *(["other"] if "other" in found else [])]]
    kept = {role: shown[role] for role in list(shown)[:ROLES]}
    return at_ns / 1e9, kept | ({"other": np.sum(rest, axis=0)} if rest else {})


def resource_chart(bundle: RunBundle) -> Figure:
    """Draw CPU by role, memory, disk, network and GPUs over the layers of the wall time.

    Raises:
        UsageError: the run was not sampled.
    """
    frame, use = bundle.resources(), bundle.run.resources
    if frame.empty or use is None:
        raise UsageError(f"Run {bundle.run.run_id} has no samples of its resources.", "choose a run that was sampled")
    layers = strips(attribute(bundle.trace).segments, bundle.trace.start_ns)
    return draw(frame, layers, use.hosts[0].cores, bundle.run.run_id)


def draw(frame: pd.DataFrame, layers: Sequence[Strip], cores: int, run_id: str) -> Figure:
    """Draw `resource_chart` from `RunBundle.resources` and the parts of the wall time."""
    host = frame[frame["role"] == HOST]
    gpu = bool(host["gpu_busy_percent"].notna().any())
    names = ["CPU, cores", "memory, GB", "disk, MB/s", "network, MB/s", *(["GPU busy, %"] if gpu else [])]
    height = 2 + 1.7 * len(names)  # heights in inches
    figure = Figure(figsize=(12, height))
    # fixed margins: a layout solver gives different last digits on each call, which become part of names in the SVG
    figure.subplots_adjust(left=0.06, right=0.87, top=1 - 0.4 / height, bottom=1.0 / height, hspace=0.12)
    panels = figure.subplots(len(names) + 1, 1, sharex=True, height_ratios=[0.35, 2, *[1] * (len(names) - 1)])
    _behind(panels[0], layers, 1.0)
    panels[0].set_yticks([0.5], ["layer"])
    for panel, name in zip(panels[1:], names, strict=True):
        _behind(panel, layers, 0.18)
        panel.set_ylabel(name)
    _cpu(panels[1], frame, cores)
    panels[2].plot(host["at_ns"] / 1e9, host["memory_bytes"] / 1e9, color="black")
    _counters(panels[3], host, {"read": "disk_read_bytes", "written": "disk_written_bytes"})
    _counters(
        panels[4], host, {"loopback": "loopback_bytes", "received": "net_received_bytes", "sent": "net_sent_bytes"}
    )
    if gpu:
        panels[5].plot(host["at_ns"] / 1e9, host["gpu_busy_percent"].astype(float), color="black")
    for panel in panels[1:]:
        panel.set_ylim(bottom=0)
    panels[-1].set_xlim(0, max(start + length for _, start, length in layers))
    panels[-1].set_xlabel("seconds since the window's start")
    panels[0].set_title(f"Resource use of the machine, run {run_id}", loc="left")
    layer_legend(figure, {layer for layer, _, _ in layers}, "lower left")
    return figure


def _behind(axes: Axes, layers: Sequence[Strip], alpha: float) -> None:
    """Draw the layers as background of a panel, or as an opaque strip."""
    top = axes.get_xaxis_transform()  # x in seconds, y relative to the panel's height
    for name in dict.fromkeys(layer for layer, _, _ in layers):
        own = [(start, length) for layer, start, length in layers if layer == name]
        hatch = HATCHES[name] if alpha == 1 else ""
        edge = "black" if hatch else "none"
        looks: Style = {
            "facecolor": colour(name),
            "edgecolor": edge,
            "linewidth": 0,
            "hatch": hatch,
            "alpha": alpha,
        }
        axes.broken_barh(own, (0, 1), transform=top, **looks)


def _cpu(axes: Axes, frame: pd.DataFrame, cores: int) -> None:
    at_s, by_role = cores_by_role(frame)
    below = np.zeros(max(0, len(at_s) - 1))
    for (role, busy), shade, pattern in zip(by_role.items(), SHADES, PATTERNS, strict=False):
        looks: Style = {"facecolor": shade, "edgecolor": "black", "linewidth": 0.2, "hatch": pattern}
        axes.stairs(below + busy, at_s, baseline=below, fill=True, label=role, **looks)
        below = below + busy
    edges, machine = rates(frame[frame["role"] == HOST], "cpu_ns")
    if len(machine):
        axes.stairs(machine / 1e9, edges, baseline=None, color="black", linewidth=0.9, label="machine")
    axes.axhline(cores, color="black", linewidth=0.6, linestyle=":")
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _counters(axes: Axes, host: pd.DataFrame, columns: dict[str, str]) -> None:
    for (label, column), style in zip(columns.items(), ("-", "--", ":"), strict=False):
        edges, grown = rates(host, column)
        if len(grown):
            axes.stairs(grown / 1e6, edges, baseline=None, linestyle=style, color="black", linewidth=0.9, label=label)
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
