"""Fixed cost and cost per epoch of each launcher, and the stack's overhead in longer trainings.

    wall time = fixed + epochs x epoch

Both costs are estimated within repeats. The cost of an epoch is the mean of all epochs after the first epoch in a
repeat. The first epoch, start-up and teardown do not depend on the number of epochs, and their variation of seconds
would hide the slope of the wall times. The fixed cost is the remainder of the repeat's mean wall time.
Each estimate is the Hodges-Lehmann centre over repeats with its exact interval, from pairs of repeats (`estimates`).

A prediction is for one more run. Its interval includes the uncertainty of the line and the variation of single runs: of
start-up and teardown in seconds, and of the cost of an epoch as a fraction, between runs and between epochs
(`variation`). If no launcher and input has two runs of three epochs, all variation of the cost counts as variation
between runs, because a run that is slow for two epochs may be slow for all epochs.

The lines need runs of 1, 2 and 3 epochs, in at least six repeats; longer runs check the predictions. The picture needs
native runs.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import t as student

from analysis.studies import estimates, script
from analysis.studies.estimates import Floats, Groups
from analysis.studies.pictures import LINES
from analysis.studies.runs import NATIVE, by_repeat, experiment, load
from analysis.studies.script import Shown
from analysis.studies.variation import Variation, slow_throughout, variation
from dlobd.compare.median import Estimate
from dlobd.compare.runset import Repeat, RunSet
from dlobd.errors import UsageError
from dlobd.measures.statistics import CONFIDENCE
from dlobd.record.run import Run

SHORT = 3
"""Maximum epochs of the runs that fit the line; longer runs check the line."""

LIMITS = ("max_steps", "max_seconds", "target_accuracy")
"""Settings that end training before its last epoch."""

GOAL = 0.05
"""Goal for the stack overhead, as a fraction of the native wall time."""

NOTABLE = 0.05
"""Smallest reported deviation from the line, as a fraction of the cost of an epoch."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of wall time over epochs for a launcher and input, in seconds.

    costs, intercepts: values by repeat; `epoch` and `fixed` are their centres.
    outside_s: start-up, first epoch and teardown of each run.
    variation: variation of single runs in the cost of an epoch.
    bend: second epoch of runs of 2 epochs minus mean of the second and third of runs of 3; None if either is missing.
    outside_epoch: change of start-up, first epoch and teardown per epoch; 0 in the model.
    """

    label: str
    costs: Mapping[Repeat, float]
    intercepts: Mapping[Repeat, float]
    fixed: Estimate
    epoch: Estimate
    outside_s: tuple[float, ...]
    variation: Variation
    bend: Estimate | None
    outside_epoch: Estimate
    walls: Mapping[int, Mapping[Repeat, float]]  # measured wall times by number of epochs, including long runs

    @property
    def repeats(self) -> int:
        """Number of repeats in the fit of the line."""
        return len(self.costs)

    def mean_s(self, epochs: int) -> float:
        """Return the wall time at a point of the line."""
        return self.fixed.value + epochs * self.epoch.value

    def predicted_s(self, epochs: int) -> Estimate:
        """Predict the wall time of one more run with a 95 % interval by normal theory (Satterthwaite 1946).

        The variances of the line, of start-up and of the cost of an epoch add up, each with its degrees of freedom.
        """
        mean_s = self.mean_s(epochs)
        if self.repeats < estimates.ENOUGH:
            return Estimate(mean_s)
        on_line = [self.intercepts[repeat] + epochs * cost for repeat, cost in self.costs.items()]
        parts = (
            (np.var(on_line, ddof=1) / self.repeats, self.repeats - 1),
            (np.var(self.outside_s, ddof=1), len(self.outside_s) - 1),
            ((epochs * self.epoch.value * self.variation.of_run(epochs)) ** 2, self.variation.degrees),
        )
        variance = sum(part for part, _ in parts)
        degrees = variance**2 / sum(part**2 / degrees for part, degrees in parts) if variance else 1
        half = float(student.ppf((1 + CONFIDENCE) / 2, degrees) * np.sqrt(variance))
        return Estimate(mean_s, mean_s - half, mean_s + half, CONFIDENCE)


@dataclass(frozen=True, slots=True)
class Check:
    """Long run with its predicted wall time; `inside` is None without an interval."""

    label: str
    epochs: int
    run_id: str
    wall_s: float
    predicted: Estimate
    inside: bool | None


@dataclass(frozen=True, slots=True)
class AgainstNative:
    """Line compared with the native line, from their common repeats.

    groups: means of cost, intercept, native cost and native intercept over groups of repeats.
    """

    line: Line
    native: Line
    repeats: int
    groups: Groups = field(repr=False)

    def ratio(self, epochs: float) -> Estimate:
        """Return the ratio of mean wall time to native mean wall time."""
        cost, intercept, native_cost, native_intercept = self.groups.means
        return self.groups.estimate((intercept + epochs * cost) / (native_intercept + epochs * native_cost))

    def epochs_to(self, goal: float = GOAL) -> Estimate:
        """Return the fewest epochs with an overhead of at most `goal`; infinite if no number suffices."""
        each = _epochs_to(goal, *self.groups.means)
        return self.groups.estimate(each, float(np.ceil(np.median(each))))


@dataclass(frozen=True, slots=True)
class Amortisation:
    """Lines, comparisons with the native line if it exists, checks by long runs, and warnings."""

    lines: tuple[Line, ...]
    against: tuple[AgainstNative, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


PREDICTIONS = (
    "Predictions have 95 % intervals by normal theory. In simulations of six repeats they contained the wall time in "
    "92 to 97 % of cases."
)
"""Note below `prediction_table`."""


def amortisation(runs: RunSet, keep_busy: bool = False) -> Amortisation:
    """Estimate lines from short runs, and check them by long runs.

    Raises:
        UsageError: the runs did different work apart from their epochs; a limit other than epochs ended training; or a
            launcher and input has no repeat with at least two different numbers of epochs up to `SHORT`.
    """
    groups, warnings = script.checked(runs, keep_busy, also=("epochs",))
    for name in LIMITS:
        if getattr(experiment(runs.runs[0]), name):
            raise UsageError(f"These runs end by {name}: their epochs do not define their duration.", f"{name}=0")
    # pooled over all groups, because six runs of one group are too few for the variation
    common = variation([group.runs for group in groups.values()], SHORT)
    ordered = sorted(groups.items(), key=lambda item: item[0] != NATIVE)
    lines = {label: _line(label, group, common) for label, group in ordered}
    against = [_against(line, lines[NATIVE]) for line in lines.values() if NATIVE in lines and line.label != NATIVE]
    checks = [check for label, group in groups.items() for check in _checks(lines[label], group.runs)]
    doubts = [doubt for line in lines.values() for doubt in _doubts(line)]
    return Amortisation(tuple(lines.values()), tuple(against), tuple(checks), (*warnings, *doubts))


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments for the runs and for the numbers of epochs to predict."""
    script.add_runs(parser, disturbed=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=[8, 50], metavar="N", help="epochs to predict")


def report(asked: Namespace) -> Shown:
    """Estimate the lines of the given runs; draw the picture only with native runs."""
    found = amortisation(load(asked.runs), asked.allow == "busy")
    tables = (table(found), prediction_table(found, asked.epochs), check_table(found))
    pieces = [
        *(f"warning: {words}" for words in found.warnings),
        f"Seconds, with 95 % intervals; never: the overhead does not fall below {GOAL:.0%}. {estimates.BY_ITSELF}",
        PREDICTIONS,
        *(made.to_string(index=False) + "\n" for made in tables if len(made)),
    ]
    return pieces, picture(found) if found.against else None


def table(found: Amortisation) -> pd.DataFrame:
    """Build one row per launcher and input, seconds first; brackets hold 95 % intervals."""
    over = {one.line.label: one for one in found.against}
    rows = []
    for line in found.lines:
        after = str(over[line.label].epochs_to()) if line.label in over else "-"
        of = estimates.coverage(line.fixed, line.epoch)
        rows.append((line.label, str(line.repeats), str(line.fixed), str(line.epoch), after, of))
    after = f"overhead under {GOAL:.0%} after, epochs"
    return pd.DataFrame(rows, columns=["", "repeats", "fixed, s", "an epoch, s", after, "coverage"])


def prediction_table(found: Amortisation, epochs: Sequence[int]) -> pd.DataFrame:
    """Build one row per line and number of epochs: wall time of one more run, and mean ratio to native."""
    over = {one.line.label: one for one in found.against}
    rows = []
    for line in found.lines:
        for each in epochs:
            predicted = line.predicted_s(each)
            half = f"{predicted.half_width:.0%}" if predicted.half_width is not None else "-"
            ratio = over[line.label].ratio(each) if line.label in over else "1" if over else "-"
            rows.append((line.label, str(each), str(predicted), half, str(ratio)))
    return pd.DataFrame(rows, columns=["", "epochs", "predicted wall, s", "half-width", "ratio to native"])


def check_table(found: Amortisation) -> pd.DataFrame:
    """Build one row per long run: wall time, prediction, and result of the check."""
    results = {True: "inside", False: "outside", None: "no interval"}
    rows = [
        (one.label, str(one.epochs), one.run_id, str(Estimate(one.wall_s)), str(one.predicted), results[one.inside])
        for one in found.checks
    ]
    return pd.DataFrame(rows, columns=["", "epochs", "run", "wall, s", "predicted wall, s", "it is"])


@dataclass(frozen=True, slots=True)
class _Block:
    """Two or more short runs of one repeat, by epochs.

    outside_s: start-up, first epoch and teardown. after_s: the epochs after the first.
    """

    outside_s: Mapping[int, float]
    after_s: Mapping[int, float]

    @property
    def cost_s(self) -> float:
        return sum(self.after_s.values()) / sum(epochs - 1 for epochs in self.after_s)

    @property
    def intercept_s(self) -> float:
        return fmean(self.outside_s.values()) - self.cost_s

    @property
    def bend_s(self) -> float | None:
        return self.after_s[2] - self.after_s[3] / 2 if {2, 3} <= self.after_s.keys() else None

    @property
    def outside_epoch_s(self) -> float:
        return float(np.polyfit([*self.outside_s], [*self.outside_s.values()], 1)[0])


def _line(label: str, group: RunSet, common: Variation | None) -> Line:
    by_epochs = sorted(group.grouped(_epochs).items())
    walls = {epochs: {repeat: _wall_s(run) for repeat, run in by_repeat(own).items()} for epochs, own in by_epochs}
    short: dict[Repeat, list[Run]] = {}
    for epochs, own in by_epochs:
        for repeat, run in by_repeat(own).items():
            if epochs <= SHORT:
                short.setdefault(repeat, []).append(run)
    blocks = {repeat: _block(runs) for repeat, runs in sorted(short.items()) if len(runs) > 1}
    if not blocks:
        raise UsageError(
            f"{label} has no repeat with runs of several numbers of epochs up to {SHORT}.",
            "run 1, 2 and 3 epochs in one series, and name runs with status ok",
        )
    costs = {repeat: block.cost_s for repeat, block in blocks.items()}
    intercepts = {repeat: block.intercept_s for repeat, block in blocks.items()}
    bends = [block.bend_s for block in blocks.values() if block.bend_s is not None]
    fixed, epoch = (estimates.centre([*each.values()]) for each in (intercepts, costs))
    outside_s = tuple(seconds for block in blocks.values() for seconds in block.outside_s.values())
    bend = estimates.centre(bends) if bends else None
    outside_epoch = estimates.centre([block.outside_epoch_s for block in blocks.values()])
    among_runs = common or slow_throughout([*costs.values()])
    return Line(label, costs, intercepts, fixed, epoch, outside_s, among_runs, bend, outside_epoch, walls)


def _block(runs: Sequence[Run]) -> _Block:
    if unknown := [run.run_id for run in runs if len(run.epochs) != _epochs(run)]:
        raise UsageError(f"Run {unknown[0]} has no end times of its epochs.", "omit it")
    after_s = {_epochs(run): (run.epochs[-1].end_ns - run.epochs[0].end_ns) / 1e9 for run in runs}
    return _Block({_epochs(run): _wall_s(run) - after_s[_epochs(run)] for run in runs}, after_s)


def _epochs(run: Run) -> int:
    return experiment(run).epochs


def _wall_s(run: Run) -> float:
    return (run.wall_ns or 0) / 1e9


def _against(line: Line, native: Line) -> AgainstNative:
    common = sorted(line.costs.keys() & native.costs.keys())
    if not common:
        raise UsageError(f"No repeat has both native runs and runs of {line.label}.", "run them in one series")
    rows = [[of[repeat] for repeat in common] for each in (line, native) for of in (each.costs, each.intercepts)]
    return AgainstNative(line, native, len(common), estimates.hodges_lehmann(rows))


def _epochs_to(goal: float, cost: Floats, intercept: Floats, native_cost: Floats, native_intercept: Floats) -> Floats:
    too_much = intercept - (1 + goal) * native_intercept
    gained = np.asarray((1 + goal) * native_cost - cost)  # cost of an epoch
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gained > 0, np.maximum(1, np.ceil(np.round(too_much / gained, 6))), np.inf)


def _checks(line: Line, runs: Iterable[Run]) -> list[Check]:
    checks = []
    for epochs, run_id, wall_s in sorted((_epochs(run), run.run_id, _wall_s(run)) for run in runs):
        if epochs > SHORT:
            predicted = line.predicted_s(epochs)
            checks.append(Check(line.label, epochs, run_id, wall_s, predicted, predicted.holds(wall_s)))
    return checks


def _doubts(line: Line) -> list[str]:
    found = []
    if line.repeats < estimates.ENOUGH:
        found.append(f"{line.label}: an interval needs {estimates.ENOUGH} repeats; there are {line.repeats}.")
    if line.epoch.value <= 0 or line.epoch.holds(0.0):
        found.append(f"{line.label}: the cost of an epoch is not distinguishable from 0; predictions are invalid.")
    if line.bend and _notable(line, line.bend):
        what = f"the second of 2 epochs is {line.bend.value:+.2f} s off the mean of the second and third of 3"
        found.append(f"{line.label}: {what}: the wall time is not linear.")
    if _notable(line, line.outside_epoch):
        what = f"start-up, first epoch and teardown change by {line.outside_epoch.value:+.2f} s per epoch"
        found.append(f"{line.label}: {what}, which the model ignores.")
    return found


def _notable(line: Line, departure: Estimate) -> bool:
    return departure.holds(0.0) is False and abs(departure.value) > NOTABLE * abs(line.epoch.value)


def picture(found: Amortisation) -> Figure:
    """Draw the stack overhead over epochs in percent of native, with 95 % intervals and measured points.

    Runs with filled marks determine the lines; open marks are longer runs.
    """
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    most = max([50, *(epochs for line in found.lines for epochs in line.walls)])
    epochs = np.geomspace(1, 2 * most, 40)
    for one, (style, marker, shade) in zip(found.against, LINES * len(found.against), strict=False):
        curve = [one.ratio(float(each)) for each in epochs]
        values = [_overhead_percent(each.value) for each in curve]
        axes.plot(epochs, values, linestyle=style, color=shade)
        axes.plot([], [], linestyle=style, color=shade, marker=marker, label=one.line.label)  # entry of the legend
        if curve[0].low is not None:
            low, high = ([_overhead_percent(getattr(each, end)) for each in curve] for end in ("low", "high"))
            axes.fill_between(epochs, low, high, color=shade, alpha=0.15, linewidth=0)
        for at, percent in _measured(one.line, one.native):
            face = shade if at <= SHORT else "white"
            axes.plot(at, percent, linestyle="", marker=marker, color=shade, markerfacecolor=face, markersize=8)
    axes.axhline(100 * GOAL, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=10)  # logarithmic above 10 %, linear below, to show negative overhead
    ticks = [1, 2, 3, 8, 20, 50, 100]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    percents = [-50, -20, -10, 0, 5, 10, 20, 50, 100, 200, 500]
    axes.set_yticks(percents, [f"{each} %" for each in percents])
    axes.set_ylim(bottom=min(-2.0, axes.dataLim.ymin))
    axes.set_xlabel(
        "epochs; filled marks: runs that fit the lines; open marks: longer runs; bands: 95 % intervals of the mean"
    )
    axes.set_ylabel(f"stack overhead, percent of {NATIVE}")
    axes.set_title("Amortisation: overhead of the stack in longer trainings", loc="left")
    axes.legend(fontsize="small", frameon=False)
    axes.grid(visible=True, linewidth=0.3)
    return figure


def _measured(line: Line, native: Line) -> Sequence[tuple[int, float]]:
    """Return (epochs, overhead in percent) from the mean wall times in common repeats."""
    points = []
    for epochs in sorted(line.walls.keys() & native.walls.keys()):
        common = line.walls[epochs].keys() & native.walls[epochs].keys()
        if common:
            own, other = (sum(each.walls[epochs][repeat] for repeat in common) for each in (line, native))
            points.append((epochs, _overhead_percent(own / other)))
    return points


def _overhead_percent(ratio: float) -> float:
    return 100 * (ratio - 1)
