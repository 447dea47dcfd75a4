"""How the stack's overhead shrinks as training gets longer: fixed cost and cost per epoch, from short runs.

    wall = fixed + epochs x epoch

Both are estimated within repeats. The cost of an epoch is the mean of all epochs after the first of a repeat's runs,
each from the end of the epoch before it: the first epoch, start-up and teardown are as long in a long run, and their
seconds of variation would drown the slope of the walls. The fixed cost is what then remains of the repeat's mean wall.
Each is the Hodges-Lehmann centre over repeats with its exact interval, from pairs of repeats (`dlobd.report.paired`).

A prediction is of one more run. Besides the uncertainty of the line it has the variation of single runs: of start-up
and teardown in seconds, and of the cost of an epoch as a share, from run to run and from epoch to epoch
(`dlobd.report.variation`). Where no way has two runs of three epochs, the whole variation of the cost is taken for one
from run to run: a run that is slow for two epochs may be slow for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from dlobd.attribution.statistics import CONFIDENCE, Estimate
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report import paired
from dlobd.report.blocks import NATIVE, Taken, check_equal, sound, warnings
from dlobd.report.chosen import Repeat
from dlobd.report.paired import Groups
from dlobd.report.variation import Variation, slow_throughout, variation

SHORT = 3
"""Runs of at most so many epochs give the line; longer ones check it."""

LIMITS = ("max_steps", "max_seconds", "target_accuracy")
"""With one of these set, epochs are not what ends training."""

GOAL = 0.05
"""Stack overhead that is asked for, as a share of the native wall."""


TELLING = 0.05
"""A departure from the line that is less than this share of an epoch's cost is passed over, however sure it is."""


@dataclass(frozen=True, slots=True)
class Line:
    """Wall over epochs of one launcher and input, in seconds.

    costs, intercepts: of each repeat, by repeat; `epoch` and `fixed` are their centres.
    outside_s: start-up, first epoch and teardown of each run.
    variation: of single runs in the cost of an epoch.
    bend: how much longer the second epoch of 2 is than the mean of the second and third of 3; None without both.
    outside_epoch: seconds that start-up, first epoch and teardown change an epoch, which the model says is 0.
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
    walls: Mapping[int, Mapping[Repeat, float]]  # measured, by epochs; also of long runs

    @property
    def repeats(self) -> int:
        """Repeats that gave the line."""
        return len(self.costs)

    def mean_s(self, epochs: int) -> float:
        """Wall that the line has."""
        return self.fixed.value + epochs * self.epoch.value

    def predicted_s(self, epochs: int) -> Estimate:
        """Wall of one more run, with its 95 % prediction interval by normal theory (Satterthwaite 1946): variances of
        the line, of start-up and of the cost of an epoch add up, each with the degrees of freedom that told it."""
        mean_s = self.mean_s(epochs)
        if self.repeats < paired.ENOUGH:
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
    """A long run, the wall that was predicted for it, and whether it is inside; None without an interval."""

    label: str
    epochs: int
    run_id: str
    wall_s: float
    predicted: Estimate
    inside: bool | None


@dataclass(frozen=True, slots=True)
class AgainstNative:
    """What a line has over the native one, from the repeats that both have.

    groups: of cost and intercept, native cost and native intercept.
    """

    line: Line
    native: Line
    repeats: int
    groups: Groups = field(repr=False)

    def ratio(self, epochs: float) -> Estimate:
        """Mean wall at so many epochs over that of native."""
        cost, intercept, native_cost, native_intercept = self.groups.means
        return self.groups.estimate((intercept + epochs * cost) / (native_intercept + epochs * native_cost))

    def epochs_to(self, goal: float = GOAL) -> Estimate:
        """Epochs from which on the overhead stays at most `goal`; infinite: never."""
        each = _epochs_to(goal, *self.groups.means)
        return self.groups.estimate(each, float(np.ceil(np.median(each))))


@dataclass(frozen=True, slots=True)
class Amortisation:
    """Lines, those of a stack against the native one if there is one, checks by long runs, and what is doubtful."""

    lines: tuple[Line, ...]
    against: tuple[AgainstNative, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


PREDICTIONS = (
    "The wall of one more run has 95 % by normal theory; in simulations of six repeats such intervals held it in 92 to "
    "97 of 100 cases."
)
"""What is said of `prediction_table`."""


def amortisation(every: Sequence[Taken], keep_disturbed: bool = False) -> Amortisation:
    """Lines through short runs, checked by long ones.

    Raises:
        UsageError: the runs differ in more than epochs and way; something else than epochs ended training; or a way
            has no repeat with runs of at least two different numbers of epochs up to `SHORT`.
    """
    check_equal(every, but=("epochs",))
    for name in LIMITS:
        if getattr(every[0].experiment, name):
            raise UsageError(f"These runs end by {name}: epochs do not say how long they train.", f"{name}=0")
    by_label: dict[str, list[Taken]] = {}
    for one in sound(every, keep_disturbed):
        by_label.setdefault(one.label, []).append(one)
    # of all ways together: six runs of one say little of how runs vary
    common = variation([[one.run for one in runs] for runs in by_label.values()], SHORT)
    lines = {
        label: _line(label, runs, common)
        for label, runs in sorted(by_label.items(), key=lambda item: item[0] != NATIVE)
    }
    against = [_against(line, lines[NATIVE]) for line in lines.values() if NATIVE in lines and line.label != NATIVE]
    checks = [
        check
        for label, runs in by_label.items()
        for check in _checks(lines[label], [one for one in runs if one.experiment.epochs > SHORT])
    ]
    doubts = [*warnings(every, keep_disturbed), *(words for line in lines.values() for words in _doubts(line))]
    return Amortisation(tuple(lines.values()), tuple(against), tuple(checks), tuple(doubts))


def report(found: Amortisation, epochs: Sequence[int]) -> list[str]:
    """What a person reads: doubts, the lines, what they predict for so many epochs, and how long runs compare."""
    tables = (table(found), prediction_table(found, epochs), check_table(found))
    return [
        *(f"warning: {words}" for words in found.warnings),
        f"Seconds, with 95 % intervals; never: the overhead does not fall below {GOAL:.0%}. {paired.BY_ITSELF}",
        PREDICTIONS,
        *(made.to_string(index=False) + "\n" for made in tables if len(made)),
    ]


def table(found: Amortisation) -> pd.DataFrame:
    """One row a launcher and input, seconds first; in brackets 95 % intervals."""
    over = {one.line.label: one for one in found.against}
    rows = []
    for line in found.lines:
        row = {
            "": line.label,
            "repeats": str(line.repeats),
            "fixed, s": str(line.fixed),
            "an epoch, s": str(line.epoch),
        }
        after = str(over[line.label].epochs_to()) if line.label in over else "-"
        of = paired.coverage(line.fixed, line.epoch)
        rows.append(row | {f"overhead under {GOAL:.0%} after, epochs": after, "coverage": of})
    return pd.DataFrame(rows)


def prediction_table(found: Amortisation, epochs: Sequence[int]) -> pd.DataFrame:
    """One row a launcher and input and number of epochs: the wall of one more run, and the mean ratio to native."""
    over = {one.line.label: one for one in found.against}
    rows = []
    for line in found.lines:
        for each in epochs:
            predicted = line.predicted_s(each)
            half = f"{predicted.half_width:.0%}" if predicted.half_width is not None else "-"
            row = {"": line.label, "epochs": str(each), "predicted wall, s": str(predicted), "half-width": half}
            ratio = over[line.label].ratio(each) if line.label in over else "1" if over else "-"
            rows.append(row | {"ratio to native": str(ratio)})
    return pd.DataFrame(rows)


def check_table(found: Amortisation) -> pd.DataFrame:
    """One row a long run: its wall, what was predicted for it, and whether it is inside."""
    said = {True: "inside", False: "outside", None: "no interval"}
    return pd.DataFrame(
        {
            "": one.label, "epochs": str(one.epochs), "run": one.run_id, "wall, s": str(Estimate(one.wall_s)),
            "predicted wall, s": str(one.predicted), "it is": said[one.inside],
        }
        for one in found.checks
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Block:
    """The short runs of one repeat that are there, two or more, by their epochs.

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


def _line(label: str, runs: Sequence[Taken], common: Variation | None) -> Line:
    walls: dict[int, dict[Repeat, float]] = {}
    short: dict[Repeat, list[Taken]] = {}
    for one in sorted(runs, key=lambda one: one.experiment.epochs):
        epochs = one.experiment.epochs
        if one.repeat in walls.setdefault(epochs, {}):
            raise UsageError(f"Repeat {one.repeat[1]} has two runs of {label} with {epochs} epochs.", "omit one")
        walls[epochs][one.repeat] = _wall_s(one.run)
        if epochs <= SHORT:
            short.setdefault(one.repeat, []).append(one)
    blocks = {repeat: _block(each) for repeat, each in sorted(short.items()) if len(each) > 1}
    if not blocks:
        raise UsageError(
            f"{label} has no repeat with runs of several numbers of epochs up to {SHORT}.",
            "run 1, 2 and 3 epochs in one series, and give runs that are ok",
        )
    costs = {repeat: block.cost_s for repeat, block in blocks.items()}
    intercepts = {repeat: block.intercept_s for repeat, block in blocks.items()}
    bends = [block.bend_s for block in blocks.values() if block.bend_s is not None]
    return Line(
        label,
        costs,
        intercepts,
        paired.centre([*intercepts.values()]),
        paired.centre([*costs.values()]),
        tuple(seconds for block in blocks.values() for seconds in block.outside_s.values()),
        common or slow_throughout([*costs.values()]),
        paired.centre(bends) if bends else None,
        paired.centre([block.outside_epoch_s for block in blocks.values()]),
        walls,
    )


def _block(runs: Sequence[Taken]) -> _Block:
    after_s = {one.experiment.epochs: _after_first_s(one.run, one.experiment.epochs) for one in runs}
    return _Block({one.experiment.epochs: _wall_s(one.run) - after_s[one.experiment.epochs] for one in runs}, after_s)


def _wall_s(run: Run) -> float:
    return (run.wall_ns or 0) / 1e9


def _after_first_s(run: Run, epochs: int) -> float:
    """From the end of the first epoch to that of the last."""
    if len(run.epochs) != epochs:
        raise UsageError(f"Run {run.run_id} does not say when its epochs ended.", "omit it")
    return (run.epochs[-1].end_ns - run.epochs[0].end_ns) / 1e9


def _against(line: Line, native: Line) -> AgainstNative:
    common = sorted(line.costs.keys() & native.costs.keys())
    if not common:
        raise UsageError(f"No repeat has both native runs and those of {line.label}.", "run them in one series")
    rows = [[of[repeat] for repeat in common] for each in (line, native) for of in (each.costs, each.intercepts)]
    return AgainstNative(line, native, len(common), paired.pairs(rows))


def _epochs_to(goal: float, cost: Any, intercept: Any, native_cost: Any, native_intercept: Any) -> Any:
    too_much = intercept - (1 + goal) * native_intercept
    gained = np.asarray((1 + goal) * native_cost - cost)  # an epoch
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gained > 0, np.maximum(1, np.ceil(np.round(too_much / gained, 6))), np.inf)


def _checks(line: Line, long: Iterable[Taken]) -> list[Check]:
    made = []
    for one in sorted(long, key=lambda one: (one.experiment.epochs, one.run.run_id)):
        wall_s, predicted = _wall_s(one.run), line.predicted_s(one.experiment.epochs)
        made.append(
            Check(line.label, one.experiment.epochs, one.run.run_id, wall_s, predicted, predicted.holds(wall_s))
        )
    return made


def _doubts(line: Line) -> list[str]:
    found = []
    if line.repeats < paired.ENOUGH:
        found.append(f"{line.label}: {line.repeats} repeats are too few for an interval, which needs {paired.ENOUGH}.")
    if line.epoch.value <= 0 or line.epoch.holds(0.0):
        found.append(f"{line.label}: the cost of an epoch cannot be told from 0; no prediction from it is of use.")
    if line.bend and _tells(line, line.bend):
        what = f"the second of 2 epochs is {line.bend.value:+.2f} s off the mean of the second and third of 3"
        found.append(f"{line.label}: {what}: the wall is no line.")
    if _tells(line, line.outside_epoch):
        what = f"start-up, first epoch and teardown change by {line.outside_epoch.value:+.2f} s per epoch"
        found.append(f"{line.label}: {what}, which the model leaves out.")
    return found


def _tells(line: Line, departure: Estimate) -> bool:
    return departure.holds(0.0) is False and abs(departure.value) > TELLING * abs(line.epoch.value)
