"""How the stack's overhead shrinks as training gets longer: fixed cost and cost per epoch, from short runs.

    wall = fixed + epochs x epoch

Both are estimated within repeats. The cost of an epoch is the slope, over the epochs of a repeat's runs, of the
training loop alone, from the end of the first step to that of the last: start-up and teardown do not depend on epochs,
and their seconds of variation would drown the slope. The fixed cost is what then remains of the repeat's mean wall.
Each is the Hodges-Lehmann centre over repeats, its interval from whole repeats resampled (`dlobd.report.paired`).

A prediction is of one more run. Besides the uncertainty of the line it has the variation of single runs: of start-up
and teardown in seconds, and of the cost of an epoch as a share, from run to run and from epoch to epoch
(`dlobd.report.variation`). Where runs do not tell their epochs apart, the whole variation of their loops is taken for
one from run to run: a run that is slow for three epochs may be slow for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from dlobd.bundle.run import Run
from dlobd.errors import UsageError
from dlobd.report import paired
from dlobd.report.blocks import NATIVE, Taken, check_equal, sound, warnings
from dlobd.report.chosen import Repeat
from dlobd.report.paired import Estimate, hodges_lehmann
from dlobd.report.summary import first_step_s, teardown_s
from dlobd.report.variation import Variation, variation

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

    slopes, intercepts: of each repeat, by repeat; `epoch` and `fixed` are their centres.
    outside_sd: how single runs vary in start-up and teardown, seconds.
    variation: and in the cost of an epoch.
    bend: how much longer a loop of 2 epochs is than the mean of 1 and 3; None without all three.
    outside_epoch: seconds that start-up and teardown change an epoch, which the model says is 0.
    """

    label: str
    slopes: Mapping[Repeat, float]
    intercepts: Mapping[Repeat, float]
    fixed: Estimate
    epoch: Estimate
    outside_sd: float
    variation: Variation
    bend: Estimate | None
    outside_epoch: Estimate
    walls: Mapping[int, Mapping[Repeat, float]]  # measured, by epochs; also of long runs

    @property
    def repeats(self) -> int:
        """Repeats that gave the line."""
        return len(self.slopes)

    def mean_s(self, epochs: int) -> float:
        """Wall that the line has."""
        return self.fixed.value + epochs * self.epoch.value

    def predicted_s(self, epochs: int) -> Estimate:
        """Wall of one more run, with its 95 % prediction interval."""
        slope, intercept = paired.resampled([[*self.slopes.values()], [*self.intercepts.values()]], hodges_lehmann)
        single = np.random.default_rng(0).normal(size=(2, slope.size))
        loop = epochs * slope * (1 + self.variation.of_run(epochs) * single[0])
        drawn = intercept + loop + self.outside_sd * single[1]
        return paired.estimate(self.mean_s(epochs), drawn, self.repeats)


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

    rows: of the resamples: slope and intercept, native slope and native intercept.
    """

    line: Line
    native: Line
    pairs: int
    rows: Any = field(repr=False)

    def ratio(self, epochs: float) -> Estimate:
        """Mean wall at so many epochs over that of native."""
        slope, intercept, native_slope, native_intercept = self.rows
        of = (self.line.fixed.value + epochs * self.line.epoch.value) / (
            self.native.fixed.value + epochs * self.native.epoch.value
        )
        drawn = (intercept + epochs * slope) / (native_intercept + epochs * native_slope)
        return paired.estimate(of, drawn, self.pairs)

    def epochs_to(self, goal: float = GOAL) -> Estimate:
        """Epochs from which on the overhead stays at most `goal`; infinite: never."""
        line = self.line.epoch.value, self.line.fixed.value, self.native.epoch.value, self.native.fixed.value
        return paired.estimate(float(_epochs_to(goal, *line)), _epochs_to(goal, *self.rows), self.pairs)


@dataclass(frozen=True, slots=True)
class Amortisation:
    """Lines, those of a stack against the native one if there is one, checks by long runs, and what is doubtful."""

    lines: tuple[Line, ...]
    against: tuple[AgainstNative, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


def amortisation(every: Sequence[Taken]) -> Amortisation:
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
    for one in sound(every):
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
    doubts = [*warnings(every), *(words for line in lines.values() for words in _doubts(line))]
    return Amortisation(tuple(lines.values()), tuple(against), tuple(checks), tuple(doubts))


def report(found: Amortisation, epochs: Sequence[int]) -> list[str]:
    """What a person reads: doubts, the lines, what they predict for so many epochs, and how long runs compare."""
    tables = (table(found), prediction_table(found, epochs), check_table(found))
    return [
        *(f"warning: {words}" for words in found.warnings),
        f"Seconds, with 95 % intervals; never: the overhead does not fall below {GOAL:.0%}",
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
        rows.append(row | {f"overhead under {GOAL:.0%} after, epochs": after})
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


def _line(label: str, runs: Sequence[Taken], common: Variation | None) -> Line:
    walls: dict[int, dict[Repeat, float]] = {}
    outside: dict[int, dict[Repeat, float]] = {}
    for one in runs:
        epochs = one.experiment.epochs
        if one.repeat in walls.setdefault(epochs, {}):
            raise UsageError(f"Repeat {one.repeat[1]} has two runs of {label} with {epochs} epochs.", "omit one")
        walls[epochs][one.repeat] = (one.run.wall_ns or 0) / 1e9
        outside.setdefault(epochs, {})[one.repeat] = _outside_s(one.run)
    short = sorted(epochs for epochs in walls if epochs <= SHORT)
    # whole ones only: a repeat without its longest run would have a slope of another kind
    whole = sorted(set.intersection(*(set(walls[epochs]) for epochs in short))) if len(short) > 1 else []
    if not whole:
        raise UsageError(
            f"{label} has no repeat with runs of several numbers of epochs up to {SHORT}.",
            "run 1, 2 and 3 epochs in one series, and give runs that are ok",
        )
    wall = np.array([[walls[epochs][repeat] for epochs in short] for repeat in whole])
    apart = np.array([[outside[epochs][repeat] for epochs in short] for repeat in whole])
    loop = wall - apart
    slopes = np.polyfit(short, loop.T, 1)[0]
    intercepts = wall.mean(axis=1) - slopes * fmean(short)
    fit = loop.mean() + hodges_lehmann(slopes) * (max(short) - fmean(short))
    return Line(
        label,
        dict(zip(whole, slopes.tolist(), strict=True)),
        dict(zip(whole, intercepts.tolist(), strict=True)),
        _centre(intercepts),
        _centre(slopes),
        _sd(apart.ravel()),
        common or Variation(_sd(loop[:, -1]) / fit, 0.0),
        _centre(loop[:, 1] - (loop[:, 0] + loop[:, 2]) / 2) if short == [1, 2, 3] else None,
        _centre(np.polyfit(short, apart.T, 1)[0]),
        walls,
    )


def _outside_s(run: Run) -> float:
    """Start-up and teardown."""
    first, last = first_step_s(run), teardown_s(run)
    if first is None or last is None:
        raise UsageError(f"Run {run.run_id} does not say when its training loop began and ended.", "omit it")
    return first + last


def _centre(values: Any) -> Estimate:
    drawn = paired.resampled([values], hodges_lehmann)[0]
    return paired.estimate(float(hodges_lehmann(values)), drawn, len(values))


def _sd(values: Any) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _against(line: Line, native: Line) -> AgainstNative:
    common = sorted(line.slopes.keys() & native.slopes.keys())
    if not common:
        raise UsageError(f"No repeat has both native runs and those of {line.label}.", "run them in one series")
    rows = [[of[repeat] for repeat in common] for each in (line, native) for of in (each.slopes, each.intercepts)]
    return AgainstNative(line, native, len(common), paired.resampled(rows, hodges_lehmann))


def _epochs_to(goal: float, slope: Any, intercept: Any, native_slope: Any, native_intercept: Any) -> Any:
    too_much = intercept - (1 + goal) * native_intercept
    gained = np.asarray((1 + goal) * native_slope - slope)  # an epoch
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gained > 0, np.maximum(1, np.ceil(np.round(too_much / gained, 6))), np.inf)


def _checks(line: Line, long: Iterable[Taken]) -> list[Check]:
    made = []
    for one in sorted(long, key=lambda one: (one.experiment.epochs, one.run.run_id)):
        wall_s, predicted = (one.run.wall_ns or 0) / 1e9, line.predicted_s(one.experiment.epochs)
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
        what = f"a loop of 2 epochs is {line.bend.value:+.2f} s off the middle of 1 and 3"
        found.append(f"{line.label}: {what}: the loop is no line.")
    if _tells(line, line.outside_epoch):
        what = f"start-up and teardown change by {line.outside_epoch.value:+.2f} s per epoch"
        found.append(f"{line.label}: {what}, which the model leaves out.")
    return found


def _tells(line: Line, departure: Estimate) -> bool:
    return departure.holds(0.0) is False and abs(departure.value) > TELLING * abs(line.epoch.value)
