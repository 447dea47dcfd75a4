"""Layers of one run, or means and standard deviations of several equal runs, and their picture.

Numbers come from `dlobd.report.summary`; the picture shows the table.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

import dlobd
from analysis.studies.pictures import EDGE, colour
from analysis.studies.script import Shown
from dlobd.errors import UsageError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report.summary import Part, summary

COLUMNS = {
    "layer": "name of the layer, `unattributed` or `wall`",
    "title": "name of the layer for people",
    "group": "group of layers",
    "n": "runs in which it was measured",
    "seconds": "mean over the runs",
    "seconds_sd": "standard deviation over the runs (n - 1); NaN for one run",
    "percent": "mean share of the run's wall, percent",
    "percent_sd": "standard deviation of the share (n - 1)",
    "lo_s": "lower bound of the mean, by the uncertainty of boundaries",
    "hi_s": "upper bound of the mean",
    "unexplained_s": "mean time within `seconds` without evidence",
}

PRINTED = ["title", "n", "seconds", "seconds_sd", "percent", "percent_sd", "lo_s", "hi_s", "unexplained_s"]


def overhead_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row per layer in the order of `LAYERS`, then `unattributed` and `wall`; see `COLUMNS`.

    A layer that a run did not measure is left out of the mean instead of counted as 0.

    Raises:
        UsageError: there is no run, a run has no wall time, or several runs differ in experiment or are not all ok.
    """
    if not runs:
        raise UsageError("No run was given for the table.", "name at least one run")
    for run in runs:
        if not run.wall_ns:
            raise UsageError(f"Run {run.run_id} has no wall time to split.", "omit it")
        if len(runs) > 1 and run.status != "ok":
            raise UsageError(f"Run {run.run_id} is {run.status}: it cannot be part of a mean.", "omit it")
        if run.experiment_key != runs[0].experiment_key:
            raise UsageError(
                f"Runs {runs[0].run_id} and {run.run_id} are from different experiments: they have no common mean.",
                "make one table per experiment",
            )
    parts = pd.DataFrame(
        (
            (part.layer, 100 * part.share, part.ns / 1e9, part.lo_ns / 1e9, part.hi_ns / 1e9, part.unexplained_ns / 1e9)
            for run in runs
            for part in _parts(run)
        ),
        columns=["layer", "percent", "seconds", "lo_s", "hi_s", "unexplained_s"],
    )
    groups = parts.groupby("layer", sort=False)
    rows = groups.mean().join(groups[["seconds", "percent"]].std().add_suffix("_sd")).assign(n=groups.size())
    # a layer that took no part in any run has no row
    seen = {layer.layer for run in runs for layer in run.layers} | {UNATTRIBUTED, "wall"}
    rows = rows[rows.index.isin(seen)].reset_index()
    rows["title"] = [LAYERS[name].title if name in LAYERS else name for name in rows["layer"]]
    rows["group"] = [LAYERS[name].group if name in LAYERS else "" for name in rows["layer"]]
    return rows[list(COLUMNS)]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument for the runs."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="bundle of a run")


def report(asked: Namespace) -> Shown:
    """Return the table and its picture; see `overhead_table`."""
    runs = [dlobd.load(run).run for run in asked.runs]
    table = overhead_table(runs)
    pieces = [
        f"{runs[0].experiment}, {len(runs)} run(s), window {summary(runs[0]).window}",
        # a single run may have failed
        *(f"run {run.run_id} is {run.status}: {run.reason}" for run in runs if run.status != "ok"),
        table[PRINTED].to_string(index=False, float_format="%.3f", na_rep="-"),
    ]
    return pieces, picture(table)


def picture(table: pd.DataFrame) -> Figure:
    """Draw an overhead table as one stacked bar. Unexplained time is hatched, inside its layer as well."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    left = 0.0
    for row in table[table["layer"] != "wall"].to_dict("records"):
        layer = row["layer"] if row["layer"] in LAYERS else ""
        hatched, known = row["unexplained_s"], row["seconds"] - row["unexplained_s"]
        style = {"color": colour(layer), **EDGE}
        label = f"{row['title']}  {row['seconds']:.3f} s  {row['percent']:.1f} %"
        axes.barh(0, known, left=left, label=label if layer else None, **style)
        axes.barh(0, hatched, left=left + known, label=None if layer else label, hatch="////", **style)
        left += known + hatched
    runs = int(table["n"].max())
    axes.set_xlim(0, left)
    axes.set_yticks([])
    axes.set_xlabel("seconds" if runs == 1 else f"seconds, mean of {runs} runs")
    axes.set_title("Where the wall time went (hatched: not explained)", loc="left")
    figure.legend(loc="outside lower left", ncols=3, fontsize="small", frameon=False)
    return figure


def _parts(run: Run) -> list[Part]:
    found = summary(run)
    wall_ns, rest = run.wall_ns, found.unattributed
    assert wall_ns
    assert rest
    given = {part.layer: part for part in found.parts}
    # dlobd's own job has no user code
    absent = ({row.layer for row in run.not_measured} | {"user"}) - set(given)
    parts = [given.get(layer) or Part(layer, "", 0, 0.0, 0, 0, 0) for layer in LAYERS if layer not in absent]
    wall = Part("wall", "wall", wall_ns, 1.0, wall_ns, wall_ns, found.unknown_ns)
    return [*parts, rest, wall]
