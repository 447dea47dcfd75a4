"""Test accuracy by epoch over two times: since submission, and since the first access to the data.

The second time excludes initialisation, as in MLPerf. The runs need evaluate_every_epochs; see
`dlobd.measures.epochs`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.studies import pictures, script
from analysis.studies.runs import settings_name
from analysis.studies.script import Shown
from dlobd.compare.runset import RunSet
from dlobd.errors import UsageError
from dlobd.record.run import Epoch, Run
from dlobd.report.text import MEDIANS, median

CLOCKS: dict[str, Callable[[Run, Epoch], int | None]] = {
    "from submit, s": Run.from_submit_ns,
    "from first touch of the data, s": Run.from_first_touch_ns,
}
"""Functions that return the nanoseconds until an epoch's accuracy was known, or None, by name of the start point."""


def evaluated(run: Run) -> list[Epoch]:
    """Return a run's epochs with a known test accuracy."""
    return [epoch for epoch in run.epochs if epoch.test_accuracy is not None]


def groups(runs: RunSet) -> dict[str, list[Run]]:
    """Group the runs with accuracies by label.

    Raises:
        UsageError: no run has an accuracy.
    """
    found = {
        label: kept
        for label, group in runs.grouped(lambda run: settings_name(runs, run) or "all runs").items()
        if (kept := [run for run in group.runs if evaluated(run)])
    }
    if not found:
        raise UsageError("No epoch of these runs was evaluated.", "run them with --set evaluate_every_epochs=1")
    return found


def table(found: dict[str, list[Run]]) -> pd.DataFrame:
    """Build one row per group and epoch, with medians over runs; see `dlobd.report.text.median`."""
    rows = []
    for label, runs in found.items():
        by_epoch: dict[int, list[tuple[Run, Epoch]]] = {}
        for run in runs:
            for epoch in evaluated(run):
                by_epoch.setdefault(epoch.epoch, []).append((run, epoch))
        for number, each in sorted(by_epoch.items()):
            figures = (median(epoch.test_accuracy for _, epoch in each), median(epoch.loss for _, epoch in each))
            times = (median(_seconds(clock(*one)) for one in each) for clock in CLOCKS.values())
            rows.append((label, number, len(each), *figures, *times))
    return pd.DataFrame(rows, columns=["", "epoch", "runs", "accuracy", "loss", *CLOCKS])


def targets(found: dict[str, list[Run]]) -> pd.DataFrame:
    """Build one row per group and target accuracy: number of runs that reached the target, and their median time."""
    rows = []
    for label, runs in found.items():
        every = [run.time_to_accuracy for run in runs if run.time_to_accuracy]
        for target in dict.fromkeys(time.target for time in every):
            times = [time for time in every if time.target == target]
            reached = f"{sum(time.epoch is not None for time in times)} of {len(times)} runs"
            submit = median(_seconds(time.from_submit_ns) for time in times)
            touch = median(_seconds(time.from_first_touch_ns) for time in times)
            rows.append((label, target, reached, submit, touch))
    return pd.DataFrame(rows, columns=["", "target", "reached", *CLOCKS])


def report(asked: Namespace) -> Shown:
    """Format the tables and draw the picture."""
    runs = script.usable(asked.runs)
    found = groups(runs)
    without = [f"left out: run {run.run_id} has no evaluated epoch" for run in runs.runs if not evaluated(run)]
    pieces = [
        *without,
        f"Test accuracy and time until it was known, medians of runs; {MEDIANS}",
        table(found).to_string(index=False),
    ]
    if len(reached := targets(found)):
        pieces += ["\nTime to accuracy, medians of the runs that reached it", reached.to_string(index=False)]
    figure = Figure(figsize=(13, 5), layout="constrained")
    for axes, (name, clock) in zip(figure.subplots(1, 2, sharey=True), CLOCKS.items(), strict=True):
        _draw(axes, found, clock)
        axes.set_xlabel(f"seconds {name.removesuffix(', s')}")
    figure.axes[0].set_ylabel("test accuracy")
    figure.axes[0].set_title("Test accuracy after each epoch, one line per run", loc="left")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower left", fontsize="small", frameon=False
    )
    return pieces, figure


def _draw(axes: Axes, found: dict[str, list[Run]], clock: Callable[[Run, Epoch], int | None]) -> None:
    for number, (label, runs) in enumerate(found.items()):
        shade = pictures.LINE_COLOURS[number % len(pictures.LINE_COLOURS)]
        for first, run in enumerate(runs):
            at = {
                ns / 1e9: epoch.test_accuracy or 0.0
                for epoch in evaluated(run)
                if (ns := clock(run, epoch)) is not None
            }
            name = None if first else label
            axes.plot([*at], [*at.values()], marker="o", markersize=3, linewidth=1, color=shade, label=name)
        for target in sorted({run.time_to_accuracy.target for run in runs if run.time_to_accuracy}):
            axes.axhline(target, color="grey", linestyle=":", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.grid(visible=True, linewidth=0.3)


def _seconds(ns: int | None) -> float | None:
    return ns / 1e9 if ns is not None else None
