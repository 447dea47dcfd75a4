"""Test accuracy over time, epoch by epoch, on both clocks: from submit, and from the first touch of the data.

The second is MLPerf's, which leaves initialisation out. See `dlobd.attribution.epochs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlobd.errors import UsageError
from dlobd.record.run import Epoch, Run
from dlobd.report import pictures
from dlobd.report.chosen import Chosen, grouped
from dlobd.report.text import MEDIANS, median

FROM_SUBMIT = "from submit, s"
FROM_FIRST_TOUCH = "from first touch of the data, s"

CLOCKS: dict[str, Callable[[Run, Epoch], int | None]] = {
    FROM_SUBMIT: Run.from_submit_ns,
    FROM_FIRST_TOUCH: Run.from_first_touch_ns,
}
"""Name of a clock to when, by it, an epoch's accuracy was known, in nanoseconds; None where that is unknown."""


def evaluated(run: Run) -> list[Epoch]:
    """The epochs whose test accuracy is known."""
    return [epoch for epoch in run.epochs if epoch.test_accuracy is not None]


def groups(chosen: Chosen) -> dict[str, list[Run]]:
    """Label to the runs that have accuracies.

    Raises:
        UsageError: none has.
    """
    runs = [run for run in chosen.runs if evaluated(run)]
    if not runs:
        raise UsageError(
            "No epoch of these runs was evaluated.", "run them with --set evaluate_every_epochs=1, by this dlobd"
        )
    return grouped(runs, lambda run: chosen.label(run) or "all runs")


def table(found: dict[str, list[Run]]) -> pd.DataFrame:
    """One row a group and epoch: medians of runs; see `dlobd.report.text.median`."""
    rows = []
    for label, runs in found.items():
        by_epoch: dict[int, list[tuple[Run, Epoch]]] = {}
        for run in runs:
            for epoch in evaluated(run):
                by_epoch.setdefault(epoch.epoch, []).append((run, epoch))
        for number, each in sorted(by_epoch.items()):
            figures = {
                "accuracy": median(epoch.test_accuracy for _, epoch in each),
                "loss": median(epoch.loss for _, epoch in each),
                **{name: median(_seconds(clock(*one)) for one in each) for name, clock in CLOCKS.items()},
            }
            rows.append({"": label, "epoch": number, "runs": len(each), **figures})
    return pd.DataFrame(rows)


def targets(found: dict[str, list[Run]]) -> pd.DataFrame:
    """One row a group and target accuracy: in how many runs it was reached, and the median time; empty without one."""
    rows = []
    for label, runs in found.items():
        for target, each in grouped(runs, lambda run: run.time_to_accuracy and run.time_to_accuracy.target).items():
            if target is None:
                continue
            times = [run.time_to_accuracy for run in each if run.time_to_accuracy]
            rows.append(
                {
                    "": label,
                    "target": target,
                    "reached": f"{sum(time.epoch is not None for time in times)} of {len(times)} runs",
                    FROM_SUBMIT: median(_seconds(time.from_submit_ns) for time in times),
                    FROM_FIRST_TOUCH: median(_seconds(time.from_first_touch_ns) for time in times),
                }
            )
    return pd.DataFrame(rows)


def report(chosen: Chosen) -> tuple[Iterable[str], Figure]:
    """Tables and picture. See `dlobd.report.script`."""
    found = groups(chosen)
    without = [
        f"left out: run {run.run_id} has no epoch that was evaluated" for run in chosen.runs if not evaluated(run)
    ]
    pieces = [
        *without,
        f"Test accuracy and when it was known, medians of runs; {MEDIANS}",
        table(found).to_string(index=False),
    ]
    if len(reached := targets(found)):
        pieces += ["\nTime to accuracy, medians of the runs that reached it", reached.to_string(index=False)]
    figure = Figure(figsize=(13, 5), layout="constrained")
    for axes, (name, clock) in zip(figure.subplots(1, 2, sharey=True), CLOCKS.items(), strict=True):
        _draw(axes, found, clock)
        axes.set_xlabel(f"seconds {name.removesuffix(', s')}")
    figure.axes[0].set_ylabel("test accuracy")
    figure.axes[0].set_title("Test accuracy after each epoch, a line per run", loc="left")
    figure.axes[0].legend(fontsize="small", frameon=False, loc="best")
    return pieces, figure


def _draw(axes: Axes, found: dict[str, list[Run]], clock: Callable[[Run, Epoch], int | None]) -> None:
    for number, (label, runs) in enumerate(found.items()):
        shade = pictures.LINE_COLOURS[number % len(pictures.LINE_COLOURS)]
        for first, run in enumerate(runs):
            known = [(_seconds(clock(run, epoch)), epoch.test_accuracy) for epoch in evaluated(run)]
            at = [(seconds, accuracy) for seconds, accuracy in known if seconds is not None and accuracy is not None]
            axes.plot(
                [seconds for seconds, _ in at], [accuracy for _, accuracy in at], marker="o", markersize=3, color=shade,
                linewidth=1, label=label if not first else None,
            )  # fmt: skip
        for target in sorted({run.time_to_accuracy.target for run in runs if run.time_to_accuracy}):
            axes.axhline(target, color="grey", linestyle=":", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.grid(visible=True, linewidth=0.3)


def _seconds(ns: int | None) -> float | None:
    return ns / 1e9 if ns is not None else None
