"""Layers of one run, or means and standard deviations over several equal runs, as table and picture.

Numbers come from `dlobd.report.summary`.
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
from dlobd.report.summary import parts_of, share
from dlobd.schema import LayerTime

COLUMNS = {
    "layer": "name of the layer, `unattributed` or `wall`",
    "title": "display name of the layer",
    "group": "group of layers",
    "n": "number of runs that measured the layer",
    "seconds": "mean over the runs",
    "seconds_sd": "standard deviation over the runs (n - 1); NaN for one run",
    "percent": "mean percentage of the run's wall time",
    "percent_sd": "standard deviation of the percentage (n - 1)",
    "lo_s": "lower bound of the mean, from the uncertainty of boundaries",
    "hi_s": "upper bound of the mean",
    "unexplained_s": "mean time within `seconds` without evidence",
}

PRINTED = ["title", "n", "seconds", "seconds_sd", "percent", "percent_sd", "lo_s", "hi_s", "unexplained_s"]


def overhead_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Build one row per layer in the order of `LAYERS`, then `unattributed` and `wall`; see `COLUMNS`.

    The mean of a layer excludes runs that did not measure it.

    Raises:
        UsageError: no run, a run without wall time, or several runs that differ in experiment or are not all ok.
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
            (
                part.layer,
                100 * share(run, part.ns),
                *(ns / 1e9 for ns in (part.ns, part.lo_ns, part.hi_ns, part.unexplained_ns)),
            )
            for run in runs
            for part in _parts(run)
        ),
        columns=["layer", "percent", "seconds", "lo_s", "hi_s", "unexplained_s"],
    )
    groups = parts.groupby("layer", sort=False)
    rows = groups.mean().join(groups[["seconds", "percent"]].std().add_suffix("_sd")).assign(n=groups.size())
    # a layer without a part in any run has no row
    seen = {layer.layer for run in runs for layer in run.layers} | {UNATTRIBUTED, "wall"}
    rows = rows[rows.index.isin(seen)].reset_index()
    rows["title"] = [LAYERS[name].title if name in LAYERS else name for name in rows["layer"]]
    rows["group"] = [LAYERS[name].group if name in LAYERS else "" for name in rows["layer"]]
    return rows[list(COLUMNS)]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument for the runs."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="bundle of a run")


def report(asked: Namespace) -> Shown:
    """Format the table of `overhead_table` and draw its picture."""
    runs = [dlobd.load(run).run for run in asked.runs]
    table, window = overhead_table(runs), runs[0].window
    pieces = [
        f"{runs[0].experiment}, {len(runs)} run(s), window {window.name if window else 'window unknown'}",
        # only a single run may have a status other than ok
        *(f"run {run.run_id} is {run.status}: {run.reason}" for run in runs if run.status != "ok"),
        table[PRINTED].to_string(index=False, float_format="%.3f", na_rep="-"),
    ]
    return pieces, picture(table)


def picture(table: pd.DataFrame) -> Figure:
    """Draw an overhead table as one stacked bar, with unexplained time hatched, also inside its layer."""
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


def _parts(run: Run) -> list[LayerTime]:
    wall_ns = run.wall_ns
    assert wall_ns
    *layers, rest = parts_of(run)
    given = {part.layer: part for part in layers}
    # runs of dlobd's own job have no user code
    absent = ({row.layer for row in run.not_measured} | {"user"}) - set(given)
    parts = [given.get(layer) or LayerTime(layer, "", 0, 0, 0, 0, 0, 0, 0) for layer in LAYERS if layer not in absent]
    wall = LayerTime("wall", "", wall_ns, run.unexplained_ns, wall_ns, wall_ns, 0, 0, 0)
    return [*parts, rest, wall]
